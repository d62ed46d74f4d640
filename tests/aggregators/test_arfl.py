# SPDX-License-Identifier: Apache-2.0
"""ARFL: weights from training losses, what is remembered of absent sites, and a round that has no weight at all."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.core.weighting import limited_weights, risk_weights
from fdg_plugins.errors import ContributionError
from fdg_plugins.methods.fedavg import FedAvgAggregator
from tests.aggregators.trained_sites import LAYOUT, SAMPLES, UPDATES, aggregate, contribution, report_of, weights_of

ARFL = {"name": "arfl"}
# Three sites of ARFL's own example: one of high loss is left out.
LOSSES = {"art": 0.2, "cartoon": 0.5, "photo": 5.0}


def told(site: str, loss: Any) -> FLModel:
    """A contribution of a site that told its loss of the model received; its own model's is another."""
    return contribution(site, UPDATES[site], SAMPLES[site], losses=(loss, 0.01))


def run_round(aggregator: UpdateAggregator, losses: Mapping[str, float], number: int = 0) -> FLModel:
    aggregator.begin_round(LAYOUT, UPDATES, number, 10)
    return aggregate(aggregator, [told(site, loss) for site, loss in losses.items()])


def test_the_weights_are_those_of_the_closed_form_with_lambda_the_samples_of_all_known_sites() -> None:
    result = run_round(FedAvgAggregator(weighting=ARFL), LOSSES)
    assert weights_of(result) == pytest.approx({"art": 0.2725, "cartoon": 0.7275, "photo": 0.0})
    assert result.params["w"].tolist() == pytest.approx([0.2725, 0.7275])
    assert result.params["bn.running_mean"].tolist() == pytest.approx([0.2725 * 4.0 - 0.7275 * 2.0])
    assert report_of(result)["training_losses"] == [0.2, 0.5, 5.0]


def test_a_site_that_takes_no_further_part_leaves_the_problem_and_what_is_kept() -> None:
    """Having told a loss of zero, it would otherwise keep all the weight, and no other site could move the model."""
    aggregator = FedAvgAggregator(weighting={**ARFL, "strength": 0.1})
    assert weights_of(run_round(aggregator, {"art": 0.0, "cartoon": 4.5, "photo": 5.0}))["art"] > 0.5
    left = {"cartoon": 4.5, "photo": 5.0}
    assert list(weights_of(run_round(aggregator, left, 1)).values()) == [0.0, 0.0], "it may come back"
    aggregator.begin_round(LAYOUT, left, 2, 10, gone=["art"])
    found = weights_of(aggregate(aggregator, [told(site, loss) for site, loss in left.items()]))
    expected = limited_weights(risk_weights([4.5, 5.0], [300, 600], 90.0), [300, 600])
    assert list(found.values()) == expected.tolist()
    assert aggregator.state()["weighting"]["risks"].keys() == left.keys()


@pytest.mark.parametrize(
    "model",
    [
        *(told("art", loss) for loss in (math.nan, math.inf, -0.1, None, "low")),
        contribution("art", UPDATES["art"], 100),
        contribution("art", UPDATES["art"], 100, said=False),
        contribution("art", UPDATES["art"], None, losses=(0.5, 0.5)),
    ],
)
def test_a_site_without_a_usable_loss_is_refused_by_name_and_the_round_goes_on(model: FLModel) -> None:
    robust, others = FedAvgAggregator(weighting=ARFL), {"cartoon": 0.5, "photo": 0.9}
    robust.begin_round(LAYOUT, UPDATES)
    with pytest.raises(ContributionError) as caught:
        robust.accept_model(model)
    assert str(caught.value).startswith("site art: ")
    result = aggregate(robust, [told(site, loss) for site, loss in others.items()])
    assert torch.equal(result.params["w"], run_round(FedAvgAggregator(weighting=ARFL), others).params["w"])
