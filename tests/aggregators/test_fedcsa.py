# SPDX-License-Identifier: Apache-2.0
"""FedCSA: rows of the last layer by who holds the class, everything else as under FedAvg."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.aggregators import RunFacts, UpdateAggregator
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedcsa import FedCSAAggregator, class_shares, class_weights, combine_rows
from fdg_plugins.testing.inputs import same_bits
from tests.aggregators.trained_sites import aggregate, contribution, report_of

Params = dict[str, Any]
Counts = Mapping[str, Sequence[int]]

REPEATABLE = settings(derandomize=True, deadline=None)
Y, D = 3, 4
WEIGHT, BIAS = "classifier.weight", "classifier.bias"
LAST = (WEIGHT, BIAS)
SAMPLES = {"art": 10, "photo": 30, "sketch": 60}
COUNTS: Counts = {"art": (10, 0, 0), "photo": (10, 20, 0), "sketch": (20, 40, 0)}


def update_of(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"conv.weight": (2, 3), WEIGHT: (Y, D), BIAS: (Y,), "bn.running_mean": (2,)}
    return {name: torch.randn(*shape, generator=generator).to(dtype) for name, shape in shapes.items()}


UPDATES = {site: update_of(seed) for seed, site in enumerate(SAMPLES)}
LAYOUT = ModelLayout.of(UPDATES["art"])


def facts(counts: Counts = COUNTS) -> RunFacts:
    return RunFacts(counts, LAST)


def run(
    aggregator: UpdateAggregator,
    counts: Counts = COUNTS,
    sites: Sequence[str] = tuple(SAMPLES),
) -> tuple[Params, dict[str, Any]]:
    """Run one round; return its step and its report."""
    aggregator.begin_run(facts(counts))
    aggregator.begin_round(LAYOUT, sites)
    result = aggregate(aggregator, [contribution(site, UPDATES[site], SAMPLES[site]) for site in sites])
    return result.params, report_of(result)


# --- weights of the classes ---


def test_two_sites_and_three_classes_by_hand() -> None:
    # a = (1/4, 3/4), r = ((1, 0, 0), (1/3, 2/3, 0)). Class 0: 1/4 and 3/4 * 1/3 are equal. Class 1: only the second
    # site has it. Class 2: nobody has it, so a.
    weights, shares = torch.tensor([0.25, 0.75], dtype=torch.float64), class_shares([(10, 0, 0), (10, 20, 0)])
    assert shares.tolist() == [[1.0, 0.0, 0.0], pytest.approx([1 / 3, 2 / 3, 0.0])]
    of_classes = class_weights(weights, shares)
    assert of_classes[0].tolist() == pytest.approx([0.5, 0.0, 0.25])
    assert of_classes[1].tolist() == pytest.approx([0.5, 1.0, 0.75])


@REPEATABLE
@given(counts=st.lists(st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any), min_size=1, max_size=6))
def test_with_weights_by_samples_they_are_the_shares_of_each_class_and_with_equal_ones_of_the_shares(
    counts: list[list[int]],
) -> None:
    images = np.array(counts, np.float64)
    for weights, reading in (
        (images.sum(axis=1) / images.sum(), images),
        (np.full(len(counts), 1 / len(counts)), images / images.sum(axis=1, keepdims=True)),
    ):
        found = class_weights(torch.from_numpy(weights), class_shares(counts))
        held = images.sum(axis=0) > 0
        np.testing.assert_allclose(found[:, held], (reading / np.where(held, reading.sum(axis=0), 1))[:, held])
        np.testing.assert_allclose(found[:, ~held], np.broadcast_to(weights[:, None], found[:, ~held].shape))
        np.testing.assert_allclose(found.sum(dim=0), np.ones(4))
        assert bool((found >= 0).all())


def test_a_class_whose_owners_have_no_weight_follows_the_others() -> None:
    weights = torch.tensor([0.0, 0.25, 0.75], dtype=torch.float64)
    found = class_weights(weights, class_shares([(5, 5), (7, 0), (3, 0)]))
    assert found[:, 0].tolist() == [0.0, 0.25, 0.75]
    assert found[:, 1].tolist() == weights.tolist()


def test_rows_are_combined_each_with_weights_of_its_own() -> None:
    weights = torch.tensor([[1.0, 0.5], [0.0, 0.25]], dtype=torch.float64)
    matrices = [torch.tensor([[2.0, 4.0], [6.0, 8.0]]), torch.tensor([[1.0, 1.0], [4.0, 0.0]])]
    assert combine_rows(weights, matrices).tolist() == [[2.0, 4.0], [4.0, 4.0]]
    assert combine_rows(weights, [matrix[:, 0] for matrix in matrices]).tolist() == [2.0, 4.0]
    assert combine_rows(weights, matrices).dtype == torch.float32


# --- as an aggregator ---


def test_the_last_layer_moves_row_by_row_and_all_else_as_under_fedavg() -> None:
    for weighting in ["samples", "uniform"]:
        for server_lr in [1.0, 0.3]:
            step, report = run(FedCSAAggregator(weighting=weighting, server_lr=server_lr))
            plain, _ = run(FedAvgAggregator(weighting=weighting, server_lr=server_lr))
            assert same_bits(
                {name: value for name, value in step.items() if name not in LAST},
                {name: value for name, value in plain.items() if name not in LAST},
            )
            rows = class_weights(
                torch.tensor(report["weights"], dtype=torch.float64), class_shares(list(COUNTS.values()))
            )
            for name in LAST:
                stacked = torch.stack([UPDATES[site][name].double() for site in sorted(SAMPLES)])
                expected = server_lr * torch.einsum("uk,uk...->k...", rows, stacked)
                torch.testing.assert_close(step[name], expected.float())
                assert not torch.equal(step[name], plain[name])


@pytest.mark.parametrize("weighting", ["samples", "uniform", {"name": "ga", "step_size": 0.2}])
def test_equal_shares_of_the_classes_are_fedavg_to_the_bit(weighting: Any) -> None:
    counts = {"art": (1, 2, 3), "photo": (5, 10, 15), "sketch": (7, 14, 21)}
    step, report = run(FedCSAAggregator(weighting=weighting, server_lr=0.7), counts)
    plain, expected = run(FedAvgAggregator(weighting=weighting, server_lr=0.7), counts)
    assert same_bits(step, plain)
    assert report.keys() == expected.keys()
    for name, value in report.items():
        measured = name.endswith("_norm") or name.startswith(("update_norms", "cosines"))  # of a step in float32
        assert value == (pytest.approx(expected[name], rel=1e-6) if measured else expected[name]), name


def test_a_row_whose_owners_are_absent_is_a_plain_average_and_not_zero() -> None:
    counts = {"art": (5, 0, 5), "photo": (9, 0, 20), "sketch": (20, 40, 0)}
    step, report = run(FedCSAAggregator(), counts, ["art", "photo"])
    mean = sum(w * UPDATES[s][WEIGHT][1].double() for w, s in zip(report["weights"], ["art", "photo"], strict=True))
    torch.testing.assert_close(step[WEIGHT][1], mean.float())


def test_weights_that_follow_the_gaps_take_the_place_of_the_shares_of_samples() -> None:
    aggregator = FedCSAAggregator(weighting={"name": "ga", "step_size": 0.3})
    aggregator.begin_run(facts())
    weights = []
    for number in range(2):
        aggregator.begin_round(LAYOUT, SAMPLES, number, 10)
        for site, update in UPDATES.items():
            model = contribution(site, update)
            model.meta["fdg_checked_reports"] = {"gap": {"art": 3.0}.get(site, 0.0)}
            aggregator.accept_model(model)
        result = aggregator.aggregate_model()
        weights.append(torch.tensor(report_of(result)["weights"], dtype=torch.float64))
        rows = class_weights(weights[-1], class_shares(list(COUNTS.values())))
        stacked = torch.stack([UPDATES[site][BIAS].double() for site in sorted(SAMPLES)])
        torch.testing.assert_close(result.params[BIAS], torch.einsum("uk,uk->k", rows, stacked).float())
    assert weights[0][0] > 1 / 3


def test_where_the_workflow_tells_nothing_of_the_classes_the_first_contribution_ends_it() -> None:
    cases: list[tuple[RunFacts, str]] = [
        (RunFacts(), "^the names of the last layer's parameters are not known, .* it needs the workflow"),
        (RunFacts(COUNTS), "^the names of the last layer's parameters are not known"),
        (RunFacts({}, LAST), "^site photo: its number of images of each class is not known"),
        (RunFacts({"photo": (0, 0, 0)}, LAST), "^site photo: its number of images of each class is not known"),
    ]
    for known, message in cases:
        aggregator = FedCSAAggregator()
        aggregator.begin_run(known)
        with pytest.raises(SettingsError, match=message) as caught:
            aggregator.accept_model(contribution("photo", UPDATES["photo"]))
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)
