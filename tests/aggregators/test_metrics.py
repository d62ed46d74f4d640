# SPDX-License-Identifier: Apache-2.0
"""The metrics of a round are the means that FLARE's own FedAvg would return for the same answers."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.workflows.base_fedavg import BaseFedAvg

from fdg_plugins.messages import META_CHECKED_REPORTS, META_REPORT, META_SAMPLES, META_SITE
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedga import FedGAAggregator


def answer(site: str, metrics: Any, samples: int | None = None, **meta: Any) -> FLModel:
    told = {META_SITE: site, **({} if samples is None else {META_SAMPLES: samples}), **meta}
    made = FLModel(params_type=ParamsType.DIFF, params={"w": torch.ones(2)}, meta=told)
    made.metrics = metrics
    return made


def metrics_of(*answers: FLModel) -> dict[str, float] | None:
    aggregator = FedAvgAggregator(weighting="uniform")
    for one in answers:
        aggregator.accept_model(one)
    found: dict[str, float] | None = aggregator.aggregate_model().metrics
    return found


@pytest.mark.parametrize("samples", [{"art": 10, "photo": 30}, {"art": None, "photo": None}, {"art": None, "photo": 3}])
def test_metrics_are_weighted_as_flares_own_aggregation_weights_them(samples: Mapping[str, int | None]) -> None:
    sent = {"art": {"accuracy": 0.5, "loss": 2.0}, "photo": {"accuracy": 0.9, "found": True}}
    answers = [answer(site, metrics, samples[site]) for site, metrics in sent.items()]
    expected = BaseFedAvg.aggregate_fn(answers).metrics
    assert metrics_of(*answers) == pytest.approx(expected)
    assert metrics_of(*reversed(answers)) == metrics_of(*answers)
    assert expected.keys() == {"accuracy", "loss", "found"}


def test_a_metric_that_is_no_finite_number_costs_a_site_neither_update_nor_other_metrics() -> None:
    junk = {"nan": math.nan, "text": "1", "nested": {"a": 1}, "vector": torch.ones(2), "huge": 10**400, 7: 1.0}
    assert metrics_of(answer("art", {**junk, "accuracy": np.float32(0.5)}), answer("photo", {"accuracy": 1.0})) == {
        "accuracy": 0.75
    }


def test_in_flares_fedavg_the_step_of_feddg_ga_shrinks_with_the_announced_number_of_rounds() -> None:
    """FLARE's FedAvg announces the number of rounds in the context of its first round only."""
    aggregator = FedGAAggregator(step_size=0.1)
    aggregator.fl_ctx = FLContext()
    gains = []
    for number in range(4):
        context = FLContext()
        if number == 0:
            context.set_prop(AppConstants.NUM_ROUNDS, 4, private=True, sticky=False)
        aggregator.handle_event(AppEventType.ROUND_STARTED, context)
        aggregator.fl_ctx.set_prop(AppConstants.CURRENT_ROUND, number, private=True, sticky=False)
        before = aggregator.state()["weighting"]["weights"].get("art", 0.5)
        for site, gap in (("art", 1.0), ("photo", 0.0)):
            aggregator.accept_model(answer(site, None, 1, **{META_CHECKED_REPORTS: {"gap": gap}}))
        weights = aggregator.aggregate_model().meta[META_REPORT]["weights"]
        gains.append(weights[0] - before)
    assert gains == pytest.approx([0.1, 0.075, 0.05, 0.025])
