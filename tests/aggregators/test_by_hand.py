# SPDX-License-Identifier: Apache-2.0
"""FedAvg, FedNova, FedDG-GA, FedAS, FedCSA, ARFL and FedOMG: rounds of a few sites, computed by hand."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators import RunFacts, UpdateAggregator
from fdg_plugins.core.steps import effective_steps
from fdg_plugins.core.weighting import limited_weights, risk_weights
from fdg_plugins.errors import ContributionError, FDGError, SettingsError
from fdg_plugins.messages import META_CHECKED_REPORTS
from fdg_plugins.methods.fedas import REPORT_FISHER_TRACE
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedcsa import FedCSAAggregator, class_shares, class_weights
from fdg_plugins.methods.fedga import FedGAAggregator
from fdg_plugins.methods.fednova import FedNovaAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.record.round_record import AggregationRecord
from fdg_plugins.testing.inputs import BIAS, SITES, WEIGHT, random_updates, run_round, same_bits
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


def reported_round(aggregator: UpdateAggregator, name: str, values: Mapping[str, Any], number: int = 0) -> FLModel:
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
    reported_round(aggregator, "gap", dict.fromkeys(UPDATES, None))
    # Mean 1, deviations (2, -1, -1); round 5 of 10 halves the step: half of it for each of the others, sum still one.
    result = reported_round(aggregator, "gap", {"art": 3.0, "cartoon": 0.0, "photo": 0.0}, 5)
    others = 1 / 3 - gain / 2
    assert weights_of(result) == pytest.approx({"art": 1 / 3 + gain, "cartoon": others, "photo": others})
    assert result.params["w"].tolist() == pytest.approx([1 / 3 + gain + others, 2 * others])


def test_under_fedas_the_step_is_the_mean_by_traces_with_the_buffers() -> None:
    traces = {"art": 1.0, "cartoon": 5.0, "photo": 2.0}
    result = reported_round(FedAvgAggregator(weighting="as"), REPORT_FISHER_TRACE, traces)
    assert report_of(result)["weights"] == [0.125, 0.625, 0.25]
    torch.testing.assert_close(result.params["w"], torch.tensor([0.125 + 0.25, 0.625 + 0.25]))
    torch.testing.assert_close(result.params["bn.running_mean"], torch.tensor([0.5 - 1.25 + 0.125]))


COUNTS = {"art": (10, 0, 0), "photo": (10, 20, 0), "sketch": (20, 40, 0)}
FACTS = RunFacts(COUNTS, (WEIGHT, BIAS))


def test_two_sites_and_three_classes_by_hand() -> None:
    # a = (1/4, 3/4), r = ((1, 0, 0), (1/3, 2/3, 0)). Class 0: 1/4 and 3/4 * 1/3 are equal. Class 1: only the second
    # site has it. Class 2: nobody has it, so a.
    weights, shares = torch.tensor([0.25, 0.75], dtype=torch.float64), class_shares([(10, 0, 0), (10, 20, 0)])
    assert shares.tolist() == [[1.0, 0.0, 0.0], pytest.approx([1 / 3, 2 / 3, 0.0])]
    of_classes = class_weights(weights, shares)
    assert of_classes[0].tolist() == pytest.approx([0.5, 0.0, 0.25])
    assert of_classes[1].tolist() == pytest.approx([0.5, 1.0, 0.75])


@pytest.mark.parametrize(("weighting", "server_lr"), [("samples", 1.0), ("uniform", 0.3)])
def test_the_last_layer_moves_row_by_row_and_all_else_as_under_fedavg(weighting: str, server_lr: float) -> None:
    updates, csa = random_updates(), FedCSAAggregator(weighting=weighting, server_lr=server_lr)
    csa.facts = FACTS
    result = run_round(csa, updates)
    plain = run_round(FedAvgAggregator(weighting=weighting, server_lr=server_lr), updates).params
    rest = plain.keys() - FACTS.last_layer
    assert same_bits({name: result.params[name] for name in rest}, {name: plain[name] for name in rest})
    weights = torch.tensor(report_of(result)["weights"], dtype=torch.float64)
    rows = class_weights(weights, class_shares(list(COUNTS.values())))
    for name in FACTS.last_layer:
        stacked = torch.stack([updates[site][name].double() for site in sorted(SITES)])
        expected = server_lr * torch.einsum("uk,uk...->k...", rows, stacked)
        torch.testing.assert_close(result.params[name], expected.float())
        assert not torch.equal(result.params[name], plain[name])


def test_what_a_rule_needs_and_does_not_get_is_refused() -> None:
    csa, unsaid = FedCSAAggregator(), contribution("art", UPDATES["art"], None)
    csa.facts = RunFacts(COUNTS)  # as of a workflow that does not name the last layer
    with pytest.raises(SettingsError):
        csa.accept_model(contribution("art", UPDATES["art"]))
    unsaid.meta[META_CHECKED_REPORTS] = {REPORT_FISHER_TRACE: 1.0}
    with pytest.raises(ContributionError):
        FedAvgAggregator(weighting="as").accept_model(unsaid)
    with pytest.raises(SettingsError):
        step(FedOMGAggregator(grouping="domain"), vectors([1.0]))
    with pytest.raises(FDGError):
        FedOMGAggregator().direction(torch.zeros(2), [])


ARFL = {"name": "arfl"}
# Three sites of ARFL's own example: one of high loss is left out.
LOSSES = {"art": 0.2, "cartoon": 0.5, "photo": 5.0}


def told(site: str, loss: Any) -> FLModel:
    """A contribution of a site that told its loss of the model received; its own model's is another."""
    return contribution(site, UPDATES[site], SAMPLES[site], losses=(loss, 0.01))


def risk_round(aggregator: UpdateAggregator, losses: Mapping[str, float], number: int = 0) -> FLModel:
    aggregator.begin_round(LAYOUT, UPDATES, number, 10)
    return aggregate(aggregator, [told(site, loss) for site, loss in losses.items()])


def test_the_weights_are_those_of_the_closed_form_with_lambda_the_samples_of_all_known_sites() -> None:
    result = risk_round(FedAvgAggregator(weighting=ARFL), LOSSES)
    assert weights_of(result) == pytest.approx({"art": 0.2725, "cartoon": 0.7275, "photo": 0.0})
    assert result.params["w"].tolist() == pytest.approx([0.2725, 0.7275])
    assert result.params["bn.running_mean"].tolist() == pytest.approx([0.2725 * 4.0 - 0.7275 * 2.0])
    assert report_of(result)["training_losses"] == [0.2, 0.5, 5.0]


def test_a_site_that_takes_no_further_part_leaves_the_problem_and_what_is_kept() -> None:
    """Having told a loss of zero, it would otherwise keep all the weight, and no other site could move the model."""
    aggregator = FedAvgAggregator(weighting={**ARFL, "strength": 0.1})
    assert weights_of(risk_round(aggregator, {"art": 0.0, "cartoon": 4.5, "photo": 5.0}))["art"] > 0.5
    left = {"cartoon": 4.5, "photo": 5.0}
    assert list(weights_of(risk_round(aggregator, left, 1)).values()) == [0.0, 0.0], "it may come back"
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
def test_a_site_without_a_usable_loss_is_refused_by_name(model: FLModel) -> None:
    robust = FedAvgAggregator(weighting=ARFL)
    robust.begin_round(LAYOUT, UPDATES)
    with pytest.raises(ContributionError) as caught:
        robust.accept_model(model)
    assert str(caught.value).startswith("site art: ")


Params = dict[str, Any]
EXAMPLES = {"art": 3, "photo": 4, "sketch": 5, "cartoon": 6}


def step(aggregator: UpdateAggregator, updates: Sequence[Params]) -> FLModel:
    sent = (contribution(site, update, EXAMPLES[site]) for site, update in zip(EXAMPLES, updates, strict=False))
    return aggregate(aggregator, sent)


def vectors(*values: Sequence[float]) -> list[Params]:
    return [vector(*value) for value in values]


def test_a_site_that_hardly_moves_is_named_and_not_matched() -> None:
    report = report_of(step(FedOMGAggregator(server_lr=1.0), vectors([3, 1], [1, 3], [1e-4, -1e-4])))
    assert (report["idle"], report["gamma"][report["sites"].index("sketch")]) == (("sketch",), 0)
    assert AggregationRecord.from_report(report).idle == ("sketch",)


def of_steps(kappa: float, weighting: str, **steps: int) -> FLModel:
    """Return the step over FedNova of three sites with so many local steps."""
    updates = vectors([3, 1, 0], [1, 4, 1], [0, -1, 2])
    sent = [
        contribution(site, update, EXAMPLES[site], steps=count, effective_steps=float(count))
        for (site, count), update in zip(steps.items(), updates, strict=True)
    ]
    made = FedOMGAggregator(kappa=kappa, server_lr=1.0, weighting=weighting, over="fednova")
    return aggregate(made, sent)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_over_fednova_the_mean_that_is_matched_is_fednovas(weighting: str) -> None:
    plain = of_steps(0.0, weighting, art=2, photo=6, sketch=3)
    counts = np.array([3, 4, 5]) if weighting == "samples" else np.ones(3)
    p, steps = counts / counts.sum(), np.array([2, 6, 3])
    coefficients = p * (p @ steps) / steps
    assert report_of(plain)["coefficients"] == pytest.approx(coefficients.tolist())
    found = report_of(of_steps(0.5, weighting, art=2, photo=6, sketch=3))
    updates = np.array([[3, 1, 0], [1, 4, 1], [0, -1, 2]])
    mean, matched = coefficients @ updates, np.array(found["gamma"]) @ updates
    expected = coefficients + 0.5 * np.linalg.norm(mean) / np.linalg.norm(matched) * np.array(found["gamma"])
    assert found["coefficients"] == pytest.approx(expected.tolist())
    value = matched @ mean + 0.5 * np.linalg.norm(mean) * np.linalg.norm(matched)
    assert found["objective"] == pytest.approx(value)
    assert found["duality_gap"] < 1e-8
    corners = updates @ mean + 0.5 * np.linalg.norm(mean) * np.linalg.norm(updates, axis=1)
    assert value <= corners.min() + 1e-12


def test_with_equal_steps_over_fednova_is_fedomg_to_the_bit_and_other_rules_are_refused() -> None:
    updates = vectors([3, 1, 0], [1, 4, 1], [0, -1, 2])
    plain = step(FedOMGAggregator(server_lr=1.0), updates)
    assert np.array_equal(of_steps(0.5, "uniform", art=4, photo=4, sketch=4).params["w"], plain.params["w"])
    with pytest.raises(ContributionError):
        aggregate(FedOMGAggregator(over="fednova"), [contribution("art", updates[0], said=False)])
    for other in ("fedcsa", "fedomg", "fedga", "mine"):
        with pytest.raises(SettingsError) as caught:
            FedOMGAggregator(over=other)
        assert caught.value.field == "over"


def test_grouped_by_domain_the_means_are_matched_and_the_report_says_what_that_loses() -> None:
    # Domain a has (1.9, 0) and (0.1, 0), of mean (1, 0); domain b twice (0, 1). Their match is halfway, and p is
    # uniform: d = mean (0.5, 0.5), plus kappa times it. All four sites would give gamma to the shortest.
    grouped = FedOMGAggregator(grouping="domain", server_lr=1.0, kappa=1.0)
    grouped.facts = RunFacts(domains=dict(zip(EXAMPLES, ("a", "a", "b", "b"), strict=True)))
    result = step(grouped, vectors([1.9, 0], [0.1, 0], [0, 1], [0, 1]))
    np.testing.assert_allclose(result.params["w"], [1.0, 1.0], rtol=1e-9)
    report = report_of(result)
    assert report["gamma"] == pytest.approx([0.25] * 4)
    assert report["grouping_loss"] > 0.1
    assert AggregationRecord.from_report(report).grouping_loss == report["grouping_loss"]
