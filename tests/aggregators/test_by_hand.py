# SPDX-License-Identifier: Apache-2.0
"""FedAvg, FedNova, FedDG-GA and FedAS: rounds of two or three sites, computed by hand."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.core.steps import effective_steps
from fdg_plugins.errors import ContributionError
from fdg_plugins.messages import META_CHECKED_REPORTS
from fdg_plugins.methods.fedas import REPORT_FISHER_TRACE
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedga import FedGAAggregator
from fdg_plugins.methods.fednova import FedNovaAggregator
from tests.aggregators.trained_sites import (
    LAYOUT,
    SAMPLES,
    UPDATES,
    aggregate,
    contribution,
    report_of,
    vector,
    weights_of,
)


def test_effective_steps_are_the_displacement_under_a_constant_unit_gradient() -> None:
    for momentum, steps in ((0.0, 7), (0.3, 2), (0.9, 1), (0.9, 100)):
        parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = torch.optim.SGD([parameter], lr=0.25, momentum=momentum)
        for _ in range(steps):
            parameter.grad = torch.ones(1, dtype=torch.float64)
            optimizer.step()
        assert effective_steps(steps, momentum) == pytest.approx(-parameter.item() / 0.25)


def test_fednova() -> None:
    # p = (1, 3) / 4 and |a| = (2, 6): tau_eff = 5, coefficients 5/4 / 2 = 0.625 and 15/4 / 6 = 0.625.
    # Updates of two and six steps of length one along different axes are thus both 0.625 of themselves, and in the
    # step they are 5 p_u: 1.25 and 3.75. The mean would have been 0.5 and 4.5.
    art = contribution("art", vector(2.0, 0.0), 1, effective_steps=2.0, steps=2)
    photo = contribution("photo", vector(0.0, 6.0), 3, effective_steps=6.0, steps=6)
    result = aggregate(FedNovaAggregator(), [art, photo])
    assert result.params["w"].tolist() == pytest.approx([1.25, 3.75])
    report = report_of(result)
    assert report["weights"] == [0.25, 0.75]
    assert report["coefficients"] == pytest.approx([0.625, 0.625])
    assert report["effective_steps"] == [2.0, 6.0]
    assert report["mean_norm"] == pytest.approx((0.5**2 + 4.5**2) ** 0.5)
    assert report["direction_norm"] == pytest.approx((1.25**2 + 3.75**2) ** 0.5)
    assert report["cosines_with_direction"] == pytest.approx([1.25 / 15.625**0.5, 3.75 / 15.625**0.5])


def test_fednova_refuses_by_name_a_site_whose_effective_steps_cannot_be() -> None:
    cases: list[dict[str, Any]] = [
        {"said": False},
        {"effective_steps": float("inf")},
        {"effective_steps": "many"},
        {"effective_steps": 55.1, "steps": 10},
        {"effective_steps": 9.9, "steps": 10},
    ]
    aggregator = FedNovaAggregator()
    aggregator.begin_round(LAYOUT, UPDATES)
    for report in cases:
        with pytest.raises(ContributionError) as caught:
            aggregator.accept_model(contribution("art", UPDATES["art"], **report))
        assert str(caught.value).startswith("site art: ")
    for site, farthest in {"art": 10.0, "photo": 55.0}.items():
        aggregator.accept_model(contribution(site, UPDATES[site], effective_steps=farthest, steps=10))


def run_round(aggregator: UpdateAggregator, name: str, values: Mapping[str, Any], number: int = 0) -> FLModel:
    """Run a round of the sites in ``values``, with the checked report ``name``; None: without one."""
    aggregator.begin_round(LAYOUT, UPDATES, number, 10)
    for site, value in values.items():
        model = contribution(site, UPDATES[site], SAMPLES[site])
        model.meta[META_CHECKED_REPORTS] = {} if value is None else {name: value}
        aggregator.accept_model(model)
    return aggregator.aggregate_model()


@pytest.mark.parametrize(("decay", "gain"), [("linear", 0.05), ("none", 0.1)])
def test_under_feddg_ga_the_site_with_the_largest_gap_gains_by_the_decayed_step(decay: Any, gain: float) -> None:
    aggregator = FedGAAggregator(step_size=0.1, decay=decay)
    run_round(aggregator, "gap", dict.fromkeys(UPDATES, None))
    # Mean 1, deviations (2, -1, -1); round 5 of 10 halves the step: half of it for each of the others, sum still one.
    result = run_round(aggregator, "gap", {"art": 3.0, "cartoon": 0.0, "photo": 0.0}, 5)
    others = 1 / 3 - gain / 2
    assert weights_of(result) == pytest.approx({"art": 1 / 3 + gain, "cartoon": others, "photo": others})
    assert result.params["w"].tolist() == pytest.approx([1 / 3 + gain + others, 2 * others])


def test_under_fedas_the_step_is_the_mean_by_traces_with_the_buffers() -> None:
    traces = {"art": 1.0, "cartoon": 5.0, "photo": 2.0}
    result = run_round(FedAvgAggregator(weighting="as"), REPORT_FISHER_TRACE, traces)
    assert report_of(result)["weights"] == [0.125, 0.625, 0.25]
    torch.testing.assert_close(result.params["w"], torch.tensor([0.125 + 0.25, 0.625 + 0.25]))
    torch.testing.assert_close(result.params["bn.running_mean"], torch.tensor([0.5 - 1.25 + 0.125]))


@pytest.mark.parametrize("trace", [None, "1.0", -1.0, float("nan"), float("inf"), torch.tensor(1.0)])
def test_fedas_refuses_an_update_without_a_checked_trace_by_name(trace: Any) -> None:
    with pytest.raises(ContributionError) as caught:
        run_round(FedAvgAggregator(weighting="as"), REPORT_FISHER_TRACE, {"art": trace})
    assert str(caught.value).startswith("site art: ")
