# SPDX-License-Identifier: Apache-2.0
"""FedAS's weights: from checked reports alone, under any direction, and refusals by the site's name."""

from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.errors import ContributionError
from fdg_plugins.messages import META_CHECKED_REPORTS
from fdg_plugins.methods.fedas import REPORT_FISHER_TRACE
from fdg_plugins.methods.fedavg import FedAvgAggregator
from tests.aggregators.trained_sites import LAYOUT, SAMPLES, UPDATES, aggregate, contribution, report_of

TRACES = {"art": 1.0, "cartoon": 5.0, "photo": 2.0}


def told(site: str, trace: Any) -> FLModel:
    """A contribution whose report the server's filter has checked; without one if ``trace`` is None."""
    model = contribution(site, UPDATES[site], SAMPLES[site])
    model.meta[META_CHECKED_REPORTS] = {} if trace is None else {REPORT_FISHER_TRACE: trace}
    return model


def run_round(aggregator: UpdateAggregator, traces: dict[str, float]) -> FLModel:
    aggregator.begin_round(LAYOUT, UPDATES, 0, 10)
    return aggregate(aggregator, [told(site, trace) for site, trace in traces.items()])


def test_the_step_is_the_mean_by_traces_with_the_buffers() -> None:
    result = run_round(FedAvgAggregator(weighting="as"), TRACES)
    assert report_of(result)["weights"] == [0.125, 0.625, 0.25]
    torch.testing.assert_close(result.params["w"], torch.tensor([0.125 + 0.25, 0.625 + 0.25]))
    torch.testing.assert_close(result.params["bn.running_mean"], torch.tensor([0.5 - 1.25 + 0.125]))


def test_an_update_without_a_checked_trace_is_refused_and_the_round_goes_on() -> None:
    cases: list[Any] = [None, "1.0", 1, True, -1.0, float("nan"), float("inf"), torch.tensor(1.0)]
    for trace in cases:
        aggregator = FedAvgAggregator(weighting="as")
        aggregator.begin_round(LAYOUT, UPDATES, 0, 10)
        with pytest.raises(
            ContributionError, match=r"^site art: there is no usable Fisher trace of its model, from which"
        ):
            aggregator.accept_model(told("art", trace))
        aggregator.accept_model(told("photo", 3.0))
        assert report_of(aggregate(aggregator, []))["sites"] == ["photo"]
