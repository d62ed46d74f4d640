# SPDX-License-Identifier: Apache-2.0
"""ARFL: weights from training losses, what is remembered of absent sites, and a round that has no weight at all."""

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators import RunFacts, UpdateAggregator, make_weighting
from fdg_plugins.core.robust_weighting import risk_weights
from fdg_plugins.core.weighting import limited_weights
from fdg_plugins.errors import ContributionError, SettingsError
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedcsa import FedCSAAggregator
from fdg_plugins.methods.fednova import FedNovaAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
from tests.aggregators.trained_sites import LAYOUT, SAMPLES, UPDATES, aggregate, contribution, report_of

ARFL = {"name": "arfl"}
# Three sites of ARFL's own example: one of high loss is left out.
LOSSES = {"art": 0.2, "cartoon": 0.5, "photo": 5.0}


def told(site: str, loss: Any) -> FLModel:
    """A contribution of a site that told its loss of the model received; its own model's is another."""
    return contribution(site, UPDATES[site], SAMPLES[site], losses=(loss, 0.01))


def run_round(aggregator: UpdateAggregator, losses: Mapping[str, float], number: int = 0) -> FLModel:
    aggregator.begin_round(LAYOUT, UPDATES, number, 10)
    return aggregate(aggregator, [told(site, loss) for site, loss in losses.items()])


def weights(result: FLModel) -> dict[str, float]:
    report = report_of(result)
    return dict(zip(report["sites"], report["weights"], strict=True))


# --- weights ---


def test_the_weights_are_those_of_the_closed_form_with_lambda_the_samples_of_all_known_sites() -> None:
    result = run_round(FedAvgAggregator(weighting=ARFL), LOSSES)
    assert weights(result) == pytest.approx({"art": 0.2725, "cartoon": 0.7275, "photo": 0.0})
    assert result.params["w"].tolist() == pytest.approx([0.2725, 0.7275])
    assert result.params["bn.running_mean"].tolist() == pytest.approx([0.2725 * 4.0 - 0.7275 * 2.0])
    assert report_of(result)["training_losses"] == [0.2, 0.5, 5.0]


@pytest.mark.parametrize("strength", [0.1, 1.0, 20.0])
def test_the_strength_is_lambda_over_the_samples(strength: float) -> None:
    result = run_round(FedAvgAggregator(weighting={**ARFL, "strength": strength}), LOSSES)
    expected = risk_weights(list(LOSSES.values()), list(SAMPLES.values()), strength * 1000)
    assert list(weights(result).values()) == expected.tolist()


@pytest.mark.parametrize(
    ("losses", "spec"),
    [(dict.fromkeys(SAMPLES, 0.7), ARFL), (LOSSES, {**ARFL, "strength": 1e30})],
    ids=["equal losses", "a strength beyond them"],
)
def test_in_its_neutral_cases_it_is_fedavg_by_samples_to_the_bit(losses: dict[str, float], spec: Any) -> None:
    robust = run_round(FedAvgAggregator(weighting=spec, server_lr=0.3), losses)
    plain = run_round(FedAvgAggregator(weighting="samples", server_lr=0.3), losses)
    assert all(torch.equal(robust.params[name], value) for name, value in plain.params.items())
    assert weights(robust) == weights(plain)


def test_a_site_of_high_loss_loses_weight_and_one_of_low_loss_gains_it() -> None:
    shares = {site: count / 1000 for site, count in SAMPLES.items()}
    found = weights(run_round(FedAvgAggregator(weighting=ARFL), {"art": 0.1, "cartoon": 0.5, "photo": 0.9}))
    assert found["art"] > shares["art"]
    assert found["photo"] < shares["photo"]
    mean = 0.1 * 0.1 + 0.3 * 0.5 + 0.6 * 0.9
    assert found["cartoon"] == pytest.approx(shares["cartoon"] * (1 + mean - 0.5))


# --- rounds ---


def test_an_absent_site_stays_in_the_problem_with_the_loss_that_it_told_last() -> None:
    aggregator = FedAvgAggregator(weighting=ARFL)
    run_round(aggregator, {"art": 0.9, "cartoon": 0.5, "photo": 1.5})
    result = run_round(aggregator, {"art": 0.2, "photo": 0.4}, 1)
    alpha = risk_weights([0.2, 0.5, 0.4], [100, 300, 600], 1000.0)
    assert weights(result) == pytest.approx(
        {"art": float(alpha[0] / (alpha[0] + alpha[2])), "photo": float(alpha[2] / (alpha[0] + alpha[2]))}
    )
    assert sum(weights(result).values()) == pytest.approx(1.0, abs=1e-12)


def test_a_site_that_takes_no_further_part_leaves_the_problem_and_what_is_kept() -> None:
    """Having told a loss of zero, it would otherwise keep all the weight, and no other site could move the model."""
    aggregator = FedAvgAggregator(weighting={**ARFL, "strength": 0.1})
    assert weights(run_round(aggregator, {"art": 0.0, "cartoon": 4.5, "photo": 5.0}))["art"] > 0.5
    left = {"cartoon": 4.5, "photo": 5.0}
    assert list(weights(run_round(aggregator, left, 1)).values()) == [0.0, 0.0], "it may come back"
    aggregator.begin_round(LAYOUT, left, 2, 10, gone=["art"])
    result = aggregate(aggregator, [told(site, loss) for site, loss in left.items()])
    assert (
        list(weights(result).values())
        == limited_weights(risk_weights([4.5, 5.0], [300, 600], 90.0), [300, 600]).tolist()
    )
    assert aggregator.state()["weighting"]["risks"].keys() == left.keys()


def test_a_site_that_was_never_seen_is_not_part_of_the_problem() -> None:
    aggregator = FedAvgAggregator(weighting=ARFL)
    result = run_round(aggregator, {"art": 0.2, "photo": 0.4})
    assert list(weights(result).values()) == risk_weights([0.2, 0.4], [100, 600], 700.0).tolist()
    result = run_round(aggregator, {"cartoon": 0.3, "photo": 0.4}, 1)
    alpha = risk_weights([0.2, 0.3, 0.4], [100, 300, 600], 1000.0)
    assert weights(result)["cartoon"] == pytest.approx(float(alpha[1] / (alpha[1] + alpha[2])))


@pytest.mark.parametrize("weighting", [ARFL, {**ARFL, "strength": 3.0}])
def test_state_saved_as_json_and_restored_mid_run_gives_the_unbroken_run(weighting: Any) -> None:
    rounds = [
        {site: abs(math.sin(number + place)) for place, site in enumerate(SAMPLES) if (number + place) % 3}
        for number in range(6)
    ]
    unbroken = FedAvgAggregator(weighting=weighting)
    expected = [run_round(unbroken, losses, number) for number, losses in enumerate(rounds)]
    first, second = FedAvgAggregator(weighting=weighting), FedAvgAggregator(weighting=weighting)
    for number, losses in enumerate(rounds[:3]):
        run_round(first, losses, number)
    second.restore(json.loads(json.dumps(first.state(), allow_nan=False)))
    for number in range(3, 6):
        result = run_round(second, rounds[number], number)
        assert torch.equal(result.params["w"], expected[number].params["w"])
        assert report_of(result) == report_of(expected[number])


# --- a round none of whose sites has a weight ---


def before_a_round_without_weight(aggregator: UpdateAggregator) -> UpdateAggregator:
    """Art alone has weight in what is known, and photo alone comes next."""
    aggregator.begin_run(RunFacts(dict.fromkeys(SAMPLES, (5, 5)), ("w",)))
    run_round(aggregator, {"art": 0.1, "photo": 50.0})
    return aggregator


@pytest.mark.parametrize("make", [FedAvgAggregator, FedNovaAggregator, FedCSAAggregator], ids=lambda one: one.__name__)
def test_without_any_weight_the_step_is_exactly_zero_and_float_buffers_stay(make: Any) -> None:
    aggregator = before_a_round_without_weight(make(weighting=ARFL))
    result = run_round(aggregator, {"photo": 50.0, "cartoon": 40.0}, 1)
    assert weights(result) == {"cartoon": 0.0, "photo": 0.0}
    assert all(not bool(value.any()) for value in result.params.values())
    assert result.params.keys() == LAYOUT.keys()
    assert report_of(result)["direction_norm"] == report_of(result)["mean_norm"] == 0.0


def test_under_fedomg_the_weights_are_the_reference() -> None:
    result = run_round(FedOMGAggregator(kappa=0.0, weighting=ARFL), LOSSES)
    assert report_of(result)["coefficients"] == pytest.approx([0.2725, 0.7275, 0.0])


# --- what is refused ---


def test_a_site_without_a_usable_loss_is_refused_by_name_and_the_round_goes_on() -> None:
    cases_1: list[type[UpdateAggregator]] = [FedAvgAggregator, FedOMGAggregator]
    cases_2: list[tuple[FLModel, str]] = [
        (told("art", math.nan), "the loss of the model received on its training split is nan, expected a finite"),
        (told("art", math.inf), "the loss of the model received on its training split is inf"),
        (told("art", -0.1), "training_split.0.loss is -0.1, but a loss should be at least 0"),
        (told("art", None), "the loss of the model received on its training split is nan"),
        (told("art", "low"), "training_split.0.loss is 'low'"),
        (contribution("art", UPDATES["art"], 100), "did not say the loss of the model received on its training split"),
        (contribution("art", UPDATES["art"], 100, said=False), "did not say the loss of the model received"),
        (contribution("art", UPDATES["art"], None, losses=(0.5, 0.5)), "did not say its number of samples"),
    ]
    for aggregator in cases_1:
        for model, message in cases_2:
            robust = aggregator(weighting=ARFL)
            robust.begin_round(LAYOUT, UPDATES)
            with pytest.raises(ContributionError, match=rf"^site art: .*{message}.*\.$"):
                robust.accept_model(model)
            result = aggregate(robust, [told("cartoon", 0.5), told("photo", 0.9)])
            expected = run_round(aggregator(weighting=ARFL), {"cartoon": 0.5, "photo": 0.9})
            assert torch.equal(result.params["w"], expected.params["w"])


def test_a_strength_that_is_no_positive_number_is_refused() -> None:
    cases: list[Any] = [0, 0.0, -1.0, math.nan, math.inf, True, "1", None, [1.0]]
    for strength in cases:
        with pytest.raises(SettingsError, match=r"^strength is .*, expected a finite number above 0\.$"):
            make_weighting({**ARFL, "strength": strength})
