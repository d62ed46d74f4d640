# SPDX-License-Identifier: Apache-2.0
"""The contract of every registered aggregator, weighting, objective and algorithm: a new one is tested unnamed."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS, Contribution, RoundOf, Weighting
from fdg_plugins.aggregators.weightings import ONLY_ROUND, Uniform
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.messages import REPORT_GAP
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.testing import AGGREGATOR_CONTRACT, OBJECTIVE_CONTRACT, WEIGHTING_CONTRACT
from tests.centralised.contract import ALGORITHM_CONTRACT

Promise = Callable[[Any], None]


def cases(members: Iterable[str], promises: Iterable[Promise]) -> list[Any]:
    """Return every member with every promise, called by both."""
    promised = tuple(promises)
    return [pytest.param(name, promise, id=f"{name}-{promise.__name__}") for name in members for promise in promised]


@pytest.mark.parametrize(("name", "promise"), cases(AGGREGATORS, AGGREGATOR_CONTRACT))
def test_aggregator(name: str, promise: Promise) -> None:
    promise(AGGREGATORS[name])


@pytest.mark.parametrize(("name", "promise"), cases(WEIGHTINGS, WEIGHTING_CONTRACT))
def test_weighting(name: str, promise: Promise) -> None:
    promise(WEIGHTINGS[name])


@pytest.mark.parametrize(("name", "promise"), cases(OBJECTIVES, OBJECTIVE_CONTRACT))
def test_objective(name: str, promise: Promise) -> None:
    promise(OBJECTIVES[name])


@pytest.mark.parametrize(("name", "promise"), cases(ALGORITHMS, ALGORITHM_CONTRACT))
def test_algorithm(name: str, promise: Promise) -> None:
    promise(ALGORITHMS[name])


class Deaf(Uniform):
    """Asks for the gap, and does not read it."""

    shares = REPORT_GAP


class Heavy(Uniform):
    """Weights that sum to the number of sites."""

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        return torch.ones(len(contributions), dtype=torch.float64)


class FirstOnly(Uniform):
    """All the weight for whoever stands first."""

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        return torch.eye(len(contributions), dtype=torch.float64)[0]


class Forgetful(Uniform):
    """Weights by the rounds that it has seen, which it does not keep."""

    rounds = 0

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        self.rounds += 1
        samples = torch.tensor([float(one.num_samples or 1) for one in contributions], dtype=torch.float64)
        return torch.softmax(samples * self.rounds / samples.sum(), 0)


class Secretive(Uniform):
    """Reports what no record can hold."""

    def report(self, contributions: Sequence[Contribution]) -> dict[str, list[Any]]:
        return {"spread": [object() for _ in contributions]}


def kept(promise: Promise, member: type[Weighting]) -> bool:
    try:
        promise(member)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize(
    ("bad", "broken"),
    [
        (Deaf, {"what_it_reads_changes_its_weights"}),
        (Heavy, {"weights_lie_on_the_simplex", "order_and_names_make_no_difference"}),
        (FirstOnly, {"order_and_names_make_no_difference"}),
        (Forgetful, {"a_state_that_was_saved_goes_on_as_if_unbroken"}),
        (Secretive, {"what_it_reports_can_be_recorded"}),
    ],
)
def test_a_weighting_that_breaks_a_promise_is_found(bad: type[Weighting], broken: set[str]) -> None:
    assert {promise.__name__ for promise in WEIGHTING_CONTRACT if not kept(promise, bad)} == broken
