# SPDX-License-Identifier: Apache-2.0
"""FedDG-GA: weights that follow the gaps, alone and under FedOMG's direction."""

from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.messages import META_CHECKED_REPORTS, META_REPORT, META_SITE
from fdg_plugins.methods.fedga import FedGAAggregator

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


def test_the_site_with_the_largest_gap_gains_by_the_decayed_step() -> None:
    aggregator = FedGAAggregator(step_size=0.1)
    run_round(aggregator, dict.fromkeys(UPDATES), 0)
    # Mean 1, deviations (2, -1, -1); round 5 of 10 halves the step: moves (0.05, -0.025, -0.025), sum still one.
    result = run_round(aggregator, {"art": 3.0, "cartoon": 0.0, "photo": 0.0}, 5)
    third = 1 / 3
    assert weights(result) == pytest.approx({"art": third + 0.05, "cartoon": third - 0.025, "photo": third - 0.025})
    expected = [sum(weights(result)[site] * UPDATES[site][axis] for site in UPDATES) for axis in range(2)]
    assert result.params["w"].tolist() == pytest.approx(expected)
