# SPDX-License-Identifier: Apache-2.0
"""FedCSA: rows of the last layer by who holds the class, everything else as under FedAvg."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from fdg_plugins.aggregators import RunFacts, UpdateAggregator
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedcsa import FedCSAAggregator, class_shares, class_weights
from fdg_plugins.testing.inputs import same_bits
from tests.aggregators.trained_sites import aggregate, contribution, report_of

Params = dict[str, Any]
Counts = Mapping[str, Sequence[int]]

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
