# SPDX-License-Identifier: Apache-2.0
"""FedDG-GA: weights that follow the gaps, alone and under FedOMG's direction."""

import json
import math
from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import META_CHECKED_REPORTS, META_REPORT, META_SITE
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedga import FedGAAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator

UPDATES = {"art": [1.0, 0.0], "cartoon": [0.0, 1.0], "photo": [1.0, 1.0]}
LAYOUT = ModelLayout.of({"w": torch.zeros(2)})


def run_round(aggregator: UpdateAggregator, gaps: dict[str, Any], number: int, total: int = 10) -> FLModel:
    """Run one round of the sites in ``gaps``; a gap of None is not reported."""
    aggregator.begin_round(LAYOUT, UPDATES, number, total)
    for site, gap in gaps.items():
        reports = {} if gap is None else {"gap": gap}
        meta = {META_SITE: site, META_CHECKED_REPORTS: reports}
        params = {"w": torch.tensor(UPDATES[site])}
        aggregator.accept_model(FLModel(params_type=ParamsType.DIFF, params=params, meta=meta))
    return aggregator.aggregate_model()


def weights(result: FLModel) -> dict[str, float]:
    report = result.meta[META_REPORT]
    return dict(zip(report["sites"], report["weights"], strict=True))


def test_without_gaps_the_first_round_is_uniform() -> None:
    result = run_round(FedGAAggregator(), dict.fromkeys(UPDATES), 0)
    assert list(weights(result).values()) == pytest.approx([1 / 3] * 3)
    assert result.meta[META_REPORT]["gaps"] == [None, None, None]


def test_the_site_with_the_largest_gap_gains_by_the_decayed_step() -> None:
    aggregator = FedGAAggregator(step_size=0.1)
    run_round(aggregator, dict.fromkeys(UPDATES), 0)
    # Mean 1, deviations (2, -1, -1); round 5 of 10 halves the step: moves (0.05, -0.025, -0.025), sum still one.
    result = run_round(aggregator, {"art": 3.0, "cartoon": 0.0, "photo": 0.0}, 5)
    third = 1 / 3
    assert weights(result) == pytest.approx({"art": third + 0.05, "cartoon": third - 0.025, "photo": third - 0.025})
    expected = [sum(weights(result)[site] * UPDATES[site][axis] for site in UPDATES) for axis in range(2)]
    assert result.params["w"].tolist() == pytest.approx(expected)


def test_an_absent_site_keeps_its_weight_and_the_round_takes_the_share_of_the_others() -> None:
    aggregator = FedGAAggregator(step_size=0.3)
    run_round(aggregator, {"art": 3.0, "cartoon": 0.0, "photo": 0.0}, 0)
    before = aggregator.state()["weighting"]["weights"]
    result = run_round(aggregator, {"art": 0.0, "photo": 0.0}, 1)
    assert aggregator.state()["weighting"]["weights"] == pytest.approx(before)
    assert weights(result)["art"] == pytest.approx(before["art"] / (before["art"] + before["photo"]))


def test_a_site_whose_first_answer_is_missing_has_its_weight_from_that_round_on() -> None:
    aggregator = FedGAAggregator(step_size=0.1)
    run_round(aggregator, {"art": 1.0, "photo": 0.0}, 0)
    expected = {"art": 1 / 3 + 0.1, "cartoon": 1 / 3, "photo": 1 / 3 - 0.1}
    assert aggregator.state()["weighting"]["weights"] == pytest.approx(expected)


def test_a_refused_gap_leaves_that_sites_weight_and_the_round_goes_on() -> None:
    aggregator = FedGAAggregator(step_size=0.3)
    result = run_round(aggregator, {"art": 1.0, "cartoon": None, "photo": 0.0}, 0)
    assert weights(result)["cartoon"] == pytest.approx(1 / 3)
    assert weights(result)["art"] > weights(result)["photo"]


def test_step_zero_is_uniform_fedavg_bit_for_bit() -> None:
    gaps = {"art": 3.0, "cartoon": -1.0, "photo": 0.5}
    adjusted = run_round(FedGAAggregator(step_size=0.0), gaps, 3)
    plain = run_round(FedAvgAggregator(weighting="uniform"), gaps, 3)
    assert torch.equal(adjusted.params["w"], plain.params["w"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: FedGAAggregator(step_size=0.2),
        lambda: FedOMGAggregator(weighting={"name": "ga", "step_size": 0.2}),
    ],
    ids=["fedga", "fedomg+ga"],
)
def test_state_saved_as_json_and_restored_mid_run_gives_the_unbroken_run(make: Any) -> None:
    rounds = [{"art": 0.3 * r, "cartoon": math.sin(r), "photo": 0.1} for r in range(6)]
    unbroken = make()
    expected = [run_round(unbroken, gaps, number) for number, gaps in enumerate(rounds)]
    first = make()
    for number, gaps in enumerate(rounds[:3]):
        run_round(first, gaps, number)
    second = make()
    second.restore(json.loads(json.dumps(first.state())))
    for number in range(3, 6):
        assert torch.equal(run_round(second, rounds[number], number).params["w"], expected[number].params["w"])


def test_under_fedomg_the_adjusted_weights_are_the_reference() -> None:
    aggregator = FedOMGAggregator(kappa=0.0, weighting={"name": "ga", "step_size": 0.3})
    result = run_round(aggregator, {"art": 3.0, "cartoon": 0.0, "photo": 0.0}, 0)
    assert weights(result)["art"] > 0.5
    # With kappa = 0 the direction is the reference mean.
    assert result.meta[META_REPORT]["coefficients"] == pytest.approx(result.meta[META_REPORT]["weights"])


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(SettingsError, match="version 99, expected 1"):
        FedGAAggregator().restore({"version": 99, "weighting": {"weights": {}}})
