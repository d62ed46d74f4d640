# SPDX-License-Identifier: Apache-2.0
"""What weightings and directions of somebody else's return is checked where they are called, and named by its class."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fdg_plugins.aggregators import Contribution, Direction, RoundOf, UpdateAggregator, Weighting
from fdg_plugins.aggregators.weighting_rule import ONLY_ROUND
from fdg_plugins.errors import FDGError, PartError
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.testing.inputs import flat, random_updates, run_round, same_bits
from tests.controllers.rounds_stubs import all_well, make_rounds

UPDATES = random_updates()
THIRDS = torch.full((len(UPDATES),), 1 / len(UPDATES), dtype=torch.float64)


class Returning(Weighting):
    """A weighting that returns, and reports, what it is told to."""

    def __init__(self, weights: Any, report: Any = None) -> None:
        self._weights, self._report = weights, {} if report is None else report

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        weights: torch.Tensor = self._weights
        return weights

    def report(self, contributions: Sequence[Contribution]) -> dict[str, list[Any]]:
        report: dict[str, list[Any]] = self._report
        return report


class Raising(Weighting):
    """A weighting that raises an error, with its weights or, if it is given some, with its report."""

    def __init__(self, error: Exception, weights: torch.Tensor | None = None) -> None:
        self._error, self._weights = error, weights

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        if self._weights is None:
            raise self._error
        return self._weights

    def report(self, contributions: Sequence[Contribution]) -> dict[str, list[Any]]:
        raise self._error


class Towards(FedAvgAggregator):
    """An aggregator whose direction is what it is told to be."""

    told: Any = None

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        direction: Direction = self.told
        return direction


def weighted(weights: Any, report: Any = None) -> UpdateAggregator:
    aggregator = FedAvgAggregator()
    aggregator._weighting_rule = Returning(weights, report)
    return aggregator


def towards(direction: Any) -> UpdateAggregator:
    aggregator = Towards()
    aggregator.told = direction
    return aggregator


def test_what_breaks_the_contract_is_refused_in_one_sentence_with_the_class() -> None:
    cases: list[tuple[UpdateAggregator, str]] = [
        (weighted(THIRDS[1:]), "weighting Returning returned weights of shape [2], expected [3], one per update."),
        (weighted(THIRDS[:, None]), "weighting Returning returned weights of shape [3, 1], expected [3], one per"),
        (weighted([0.5, 0.25, 0.25]), "weighting Returning returned weights as a list, expected a tensor of"),
        (weighted(None), "weighting Returning returned weights as a NoneType, expected a tensor of torch.float64."),
        (weighted(torch.tensor([1, 0, 0])), "weighting Returning returned weights of torch.int64, expected a tensor"),
        (weighted(THIRDS / 0), "weighting Returning returned weights of which 3 are NaN or infinite, expected finite"),
        (weighted(3 * THIRDS), "weighting Returning returned weights that sum to 3, the smallest 1, expected"),
        (weighted(THIRDS - 1e-3), "weighting Returning returned weights that sum to 0.997, the smallest 0.332333, exp"),
        (
            weighted(torch.tensor([1.5, -0.25, -0.25])),
            "weighting Returning returned weights that sum to 1, the smallest -0.25,",
        ),
        (weighted(THIRDS, []), "Returning reports a list, expected a dict."),
        (towards(THIRDS), "aggregator Towards: direction returned a Tensor, expected a Direction of coefficients"),
        (towards(None), "aggregator Towards: direction returned a NoneType, expected a Direction of coefficients and"),
        (towards(Direction(THIRDS[1:], {})), "aggregator Towards returned coefficients of shape [2], expected [3]"),
        (towards(Direction(THIRDS * torch.nan, {})), "aggregator Towards returned coefficients of which 3 are NaN"),
        (towards(Direction(THIRDS, None)), "Towards reports a NoneType, expected a dict."),  # type: ignore[arg-type]
    ]
    for aggregator, message in cases:
        with pytest.raises(FDGError, match=f"^{re.escape(message)}"):
            run_round(aggregator, UPDATES)


def test_weights_of_another_precision_or_with_a_gradient_are_taken_as_float64() -> None:
    weights = torch.tensor([0.5, 0.25, 0.25])
    expected = run_round(weighted(weights.double()), UPDATES).params
    for same in (weights, weights.double().requires_grad_()):
        assert same_bits(run_round(weighted(same), UPDATES).params, expected)
    assert flat(expected).any()


def test_a_round_of_such_a_rule_leaves_the_model_and_says_why(tmp_path: Path) -> None:
    rounds, sites = make_rounds(tmp_path, all_well(), weighted(THIRDS[:1]))
    finished, _ = rounds.run_round(1)
    assert finished.reason is not None
    assert finished.reason.startswith("weighting Returning returned weights of shape [1], expected [")
    assert sites.warnings == [f"The model stays as it was: {finished.reason}"]
    assert rounds.model.state["w"].tolist() == [0.0, 0.0]


def raising(error: Exception, weights: torch.Tensor | None = None) -> UpdateAggregator:
    aggregator = FedAvgAggregator()
    aggregator._weighting_rule = Raising(error, weights)
    return aggregator


def test_what_a_rule_raises_ends_the_run_with_its_name_and_the_cause(tmp_path: Path) -> None:
    error = KeyError("gap")
    rounds, _ = make_rounds(tmp_path, all_well(), raising(error))
    with pytest.raises(PartError, match=r"^weighting Raising raised KeyError: 'gap'") as caught:
        rounds.run_round(1)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [FDGError("no gaps came."), ZeroDivisionError("division by zero")])
def test_an_error_that_a_round_knows_leaves_the_model_and_the_run_goes_on(error: Exception, tmp_path: Path) -> None:
    rounds, _ = make_rounds(tmp_path, all_well(), raising(error))
    finished, _ = rounds.run_round(1)
    assert finished.reason is not None
    assert str(error) in finished.reason
    assert rounds.model.state["w"].tolist() == [0.0, 0.0]
