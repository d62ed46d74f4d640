# SPDX-License-Identifier: Apache-2.0
"""MoFedSAM: the direction is an exponential average, beta one is FedSAM, and m is a mean of gradients' scale."""

import copy
import math
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import ContributionError, SettingsError
from fdg_plugins.methods.fedsam import FedSAMObjective
from fdg_plugins.methods.mofedsam import (
    MoFedSAMObjective,
    MomentumExchange,
    SiteDescent,
    mean_descent,
    mix_gradients,
)
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import Exchange, SiteRound, Trained, make_objective
from fdg_plugins.training.results import make_update
from tests.objectives.local_steps import copy_of, plain, same, train_steps
from tests.objectives.objective_batches import CLASSES, Batch, make_batches
from tests.objectives.report_round import ReportRound
from tests.random_tensors import normal

NAN, INF = math.nan, math.inf
RATE = 0.25


def received(model: ExtractorClassifier, seed: int = 0, scale: float = 0.1) -> dict[str, torch.Tensor]:
    """An m for ``model``."""
    return {name: scale * normal(seed, *value.shape) for name, value in model.named_parameters()}


# --- the server ---


WEIGHT, BIAS = "w", "b"
SHAPES = {WEIGHT: (2, 1), BIAS: (1,)}
GLOBAL = {WEIGHT: torch.zeros(2, 1), BIAS: torch.zeros(1), "running_mean": torch.zeros(3)}


def update_of(*values: float) -> dict[str, torch.Tensor]:
    """An update of ``SHAPES``, a buffer among it."""
    return {
        WEIGHT: torch.tensor([[values[0]], [values[1]]]),
        BIAS: torch.tensor([values[2]]),
        "running_mean": torch.ones(3),
    }


def report_of(length: float) -> dict[str, torch.Tensor]:
    return {"step_length": torch.tensor([length])}


def play(exchange: Exchange, *rounds: dict[str, tuple[float, dict[str, torch.Tensor]]]) -> dict[str, torch.Tensor]:
    """Rounds of sites, by name: step length and update."""
    for sites in rounds:
        of_round = ReportRound(exchange, GLOBAL)
        for site, (length, update) in sites.items():
            of_round.accept(site, report_of(length), update)
        of_round.finish(sites)
    return exchange.broadcast()


TWO = {"a": (0.5, update_of(-1.0, 2.0, 0.0)), "b": (2.0, update_of(-4.0, 0.0, 1.0))}
THREE = {**TWO, "c": (0.3, update_of(0.1, 0.2, 0.7))}


def test_m_of_two_sites_by_hand() -> None:
    """-(Delta/length): a: [2, -4, 0], b: [2, 0, -1/2]; each site counts the same, whatever its length."""
    down = play(MomentumExchange(SHAPES), TWO)
    assert sorted(down) == sorted(SHAPES)
    assert down[WEIGHT].tolist() == [[2.0], [-2.0]]
    assert down[BIAS].tolist() == [-0.25]


def test_a_site_that_took_twice_the_steps_along_the_same_gradient_counts_no_more() -> None:
    gradient = update_of(1.0, -2.0, 0.5)
    sites = {
        name: (length, {key: -length * value for key, value in gradient.items()})
        for name, length in (("a", 1.0), ("b", 2.0))
    }
    down = play(MomentumExchange(SHAPES), sites)
    assert all(torch.equal(down[name], gradient[name]) for name in SHAPES)


def test_of_one_site_and_one_plain_step_m_is_its_gradient(model: ExtractorClassifier, batches: list[Batch]) -> None:
    reference = copy.deepcopy(model)
    cross_entropy(reference.train()(batches[0][0]), batches[0][1]).backward()
    before = copy_of(model)
    train_steps(model, plain(model), [batches[:1]], lr=RATE, momentum=0.0, weight_decay=0.0)
    update = make_update(model.state_dict(), before)
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
    exchange = MomentumExchange(shapes)
    of_round = ReportRound(exchange, before)
    of_round.accept("a", report_of(RATE), update)
    of_round.finish(["a"])
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(exchange.broadcast()[name], parameter.grad, rtol=1e-4, atol=1e-5)


def test_the_first_round_sends_nothing_and_only_the_last_one_is_remembered() -> None:
    exchange = MomentumExchange(SHAPES)
    exchange.begin_round(GLOBAL)
    assert exchange.broadcast() == {}
    later = {"c": (1.0, update_of(3.0, 1.0, 1.0))}
    assert same(play(exchange, TWO, later), play(MomentumExchange(SHAPES), later))


def test_a_round_without_usable_reports_leaves_m() -> None:
    exchange = MomentumExchange(SHAPES)
    before = play(exchange, TWO)
    assert same(play(exchange, {}), before)


def test_updates_of_zero_give_an_m_of_zero_and_equal_ones_their_own() -> None:
    down = play(MomentumExchange(SHAPES), {"a": (1.0, update_of(0.0, 0.0, 0.0)), "b": (2.0, update_of(0.0, 0.0, 0.0))})
    assert not any(bool(value.any()) for value in down.values())
    equal = [SiteDescent({WEIGHT: normal(1, 4)}, 0.5)] * 3
    torch.testing.assert_close(mean_descent(equal)[WEIGHT], -2 * normal(1, 4))


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
def test_scaling_updates_scales_m_and_scaling_lengths_too_leaves_it(scale: float) -> None:
    sites = [SiteDescent({WEIGHT: normal(seed, 5)}, length) for seed, length in ((1, 0.5), (2, 3.0))]
    larger = [SiteDescent({WEIGHT: scale * site.update[WEIGHT]}, site.step_length) for site in sites]
    longer = [SiteDescent(site.update, scale * site.step_length) for site in larger]
    torch.testing.assert_close(mean_descent(larger)[WEIGHT], scale * mean_descent(sites)[WEIGHT], rtol=1e-5, atol=0)
    torch.testing.assert_close(mean_descent(longer), mean_descent(sites), rtol=1e-5, atol=0)


def test_a_state_without_a_parameter_is_refused() -> None:
    exchange = MomentumExchange(SHAPES)
    down = play(exchange, TWO)
    with pytest.raises(SettingsError, match="state of the exchange: 'b' is missing, expected b, w"):
        MomentumExchange(SHAPES).restore({**exchange.state(), "tensors": ["w"]}, {"w": down["w"]})


BAD_LENGTHS: list[tuple[Any, str]] = [
    (torch.tensor([0.0]), r"'step_length' is 0, expected a number above 0"),
    (torch.tensor([-0.5]), r"'step_length' is -0\.5, expected a number above 0"),
    (torch.tensor([1e-60], dtype=torch.float64), r"'step_length' is 0, expected a number above 0"),
    (torch.tensor([NAN]), "'step_length' has 1 values that are NaN or infinite"),
    (torch.tensor([INF]), "'step_length' has 1 values that are NaN or infinite"),
    (torch.tensor([1e16]), r"'step_length' has values beyond 1e\+15"),
    (torch.tensor([1e-30]), r"the update over 'step_length' has values beyond 1e\+15"),
    (torch.tensor(1.0), r"'step_length' has shape \[\], expected \[1\]"),
    (torch.tensor([1]), "'step_length' has dtype torch.int64, expected floating-point numbers"),
    (1.0, "'step_length' is a float, expected a dense array"),
]
BAD_REPORTS: list[tuple[Any, str]] = [
    (None, "sent nothing, expected a mapping with step_length"),
    ({}, "'step_length' is missing, expected step_length"),
    ({**report_of(1.0), "m": torch.ones(1)}, "sent 'm', expected only step_length"),
    *[({"step_length": value}, reason) for value, reason in BAD_LENGTHS],
]
GOOD = update_of(1.0, 1.0, 1.0)
BAD_UPDATES: list[tuple[Any, str]] = [
    (None, "'step_length' came without an update of 'b', expected both"),
    ({BIAS: GOOD[BIAS]}, "'step_length' came without an update of 'w', expected both"),
    ({**GOOD, WEIGHT: torch.ones(1, 2)}, r"'w' has shape \[1, 2\], expected \[2, 1\]"),
    ({**GOOD, BIAS: torch.tensor([NAN])}, "'b' has 1 values that are NaN or infinite"),
    ({**GOOD, BIAS: "0.0"}, "'b' is a str, expected a dense array"),
]


@pytest.mark.parametrize(
    ("report", "update", "reason"),
    [
        *[(report, GOOD, reason) for report, reason in BAD_REPORTS],
        *[(report_of(1.0), update, reason) for update, reason in BAD_UPDATES],
    ],
)
def test_what_is_no_step_length_or_no_update_is_refused_by_site_and_does_not_count(
    report: Any, update: Any, reason: str
) -> None:
    exchange = MomentumExchange(SHAPES)
    of_round = ReportRound(exchange, GLOBAL)
    with pytest.raises(ContributionError, match=rf"^site a: {reason}.*\.$"):
        of_round.accept("a", report, update)
    of_round.accept("b", report_of(1.0), GOOD)
    of_round.finish(["a", "b"])
    assert same(exchange.broadcast(), play(MomentumExchange(SHAPES), {"b": (1.0, GOOD)}))


def test_arrays_are_as_good_as_tensors_at_the_server() -> None:
    exchange = MomentumExchange(SHAPES)
    of_round = ReportRound(exchange, GLOBAL)
    for site, (length, update) in TWO.items():
        arrays: Any = {name: value.numpy() for name, value in update.items()}
        of_round.accept(site, {"step_length": torch.tensor([length]).numpy()}, arrays)
    of_round.finish(TWO)
    assert same(exchange.broadcast(), play(MomentumExchange(SHAPES), TWO))


# --- the step ---


def test_gradients_are_mixed_by_beta() -> None:
    layer = torch.nn.Linear(2, 1)
    momentum = {"weight": torch.tensor([[4.0, 0.0]]), "bias": torch.tensor([-8.0])}
    layer.weight.grad = torch.tensor([[2.0, 4.0]])
    mix_gradients(layer, momentum, 0.75)
    assert layer.weight.grad.tolist() == [[2.5, 3.0]]
    assert layer.bias.grad is None  # frozen: nothing to mix with
    mix_gradients(layer, {}, 0.5)
    assert layer.weight.grad.tolist() == [[1.25, 1.5]]


@pytest.mark.parametrize("known", [False, True])
def test_with_beta_one_training_is_that_of_fedsam_to_the_bit_also_when_m_was_received(
    known: bool, linear_model: ExtractorClassifier
) -> None:
    reference, sent = copy.deepcopy(linear_model), received(linear_model) if known else {}
    batches = make_batches(linear_model)
    expected = train_steps(reference, FedSAMObjective(0.6).local({}, reference), [batches] * 2, momentum=0.0)
    local = MoFedSAMObjective(radius=0.6, beta=1.0).local(sent, linear_model)
    training = train_steps(linear_model, local, [batches] * 2, momentum=0.0)
    assert same(copy_of(linear_model), copy_of(reference))
    assert training.epoch_losses == expected.epoch_losses


def test_before_anything_is_received_a_step_is_fedsams_times_beta(
    model: ExtractorClassifier, batches: list[Batch]
) -> None:
    """And so is FedSAM's with a learning rate times beta, without weight decay, which is the optimiser's."""
    reference = copy.deepcopy(model)
    train_steps(
        reference,
        FedSAMObjective(0.6).local({}, reference),
        [batches],
        lr=0.5 * RATE,
        momentum=0.0,
        weight_decay=0.0,
    )
    local = MoFedSAMObjective(radius=0.6, beta=0.5).local({}, model)
    train_steps(model, local, [batches], lr=RATE, momentum=0.0, weight_decay=0.0)
    assert same(copy_of(model), copy_of(reference))


def test_weight_decay_is_not_mixed(model: ExtractorClassifier, batches: list[Batch]) -> None:
    """One step: theta - eta (beta g~ + (1 - beta) m + decay theta)."""
    momentum, start = received(model), copy_of(model)
    steps = {}
    for decay in (0.0, 0.5):
        trained = copy.deepcopy(model)
        local = MoFedSAMObjective().local(momentum, trained)
        train_steps(trained, local, [batches[:1]], lr=RATE, momentum=0.0, weight_decay=decay)
        steps[decay] = {name: value.detach() - start[name] for name, value in trained.named_parameters()}
    for name in momentum:
        torch.testing.assert_close(steps[0.5][name], steps[0.0][name] - RATE * 0.5 * start[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("beta", [0.1, 0.6])
def test_with_one_site_and_one_full_batch_step_the_direction_is_an_exponential_average(
    beta: float, model: ExtractorClassifier, batches: list[Batch]
) -> None:
    """rho = 0, tau = 1, plain SGD: d_r = beta g_r + (1 - beta) d_{r-1}, d before the first round zero."""
    objective = MoFedSAMObjective(radius=0, beta=beta)
    exchange = objective.exchange(model, CLASSES)
    images, labels = batches[0]
    average = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for number in range(4):
        before, probe = copy_of(model), copy.deepcopy(model)
        probe.zero_grad()
        cross_entropy(probe(images), labels).backward()
        gradients = {name: value.grad for name, value in probe.named_parameters() if value.grad is not None}
        average = {name: beta * gradients[name] + (1 - beta) * old for name, old in average.items()}

        of_round = ReportRound(exchange, before)
        local = objective.local(exchange.broadcast(), model, SiteRound("a", number, learning_rate=RATE))
        training = train_steps(model, local, [[(images, labels)]], lr=RATE, momentum=0.0, weight_decay=0.0)
        update = make_update(model.state_dict(), before)
        of_round.accept("a", local.report(Trained(update, training.steps, training.steps)), update)
        of_round.finish(["a"])
        for name, expected in average.items():
            torch.testing.assert_close(-update[name] / RATE, expected, rtol=1e-3, atol=2e-5)


# --- the site ---


def test_the_report_is_steps_times_learning_rate_and_nothing_is_kept(linear_model: ExtractorClassifier) -> None:
    site = SiteRound("a", 3, learning_rate=0.125)
    local = MoFedSAMObjective().local({}, linear_model, site)
    trained = Trained({}, 24, 24.0)
    report = local.report(trained)
    assert report["step_length"].tolist() == [3.0]
    assert (list(report), report["step_length"].dtype) == (["step_length"], torch.float32)
    assert local.memory(trained) == {}
    assert MoFedSAMObjective.report == "step_length"


def test_momentum_of_the_optimiser_is_ruled_out_and_no_task_comes_before_training() -> None:
    objective = make_objective("mosam")
    assert objective == MoFedSAMObjective(radius=0.05, beta=0.6)
    assert objective.plain_sgd
    assert not objective.probes


@pytest.mark.parametrize("how", ["missing", "extra", "shape", "dtype", "nan", "large", "text"])
@pytest.mark.parametrize("beta", [0.6, 1.0])
def test_what_does_not_fit_is_refused_by_the_site_in_one_sentence(
    how: str, beta: float, linear_model: ExtractorClassifier
) -> None:
    sent: dict[str, Any] = received(linear_model)
    value = sent["classifier.bias"]
    damaged: dict[str, Any] = {
        "missing": {name: other for name, other in sent.items() if name != "classifier.bias"},
        "extra": {**sent, "more": value},
        "shape": {**sent, "classifier.bias": value[:-1]},
        "dtype": {**sent, "classifier.bias": value.int()},
        "nan": {**sent, "classifier.bias": value * NAN},
        "large": {**sent, "classifier.bias": torch.full_like(value, 1e16)},
        "text": {**sent, "classifier.bias": "0.0"},
    }
    with pytest.raises(SettingsError, match=r"^sent for objective 'mosam': .*\.$"):
        MoFedSAMObjective(beta=beta).local(damaged[how], linear_model)


def test_what_was_received_is_not_changed_by_training(linear_model: ExtractorClassifier) -> None:
    sent = received(linear_model)
    kept = {name: value.clone() for name, value in sent.items()}
    local = MoFedSAMObjective().local(sent, linear_model)
    train_steps(linear_model, local, [make_batches(linear_model)], momentum=0.0)
    assert same(sent, kept)


def test_buffers_and_a_batch_normalisations_count_are_fedavgs(linear_model: ExtractorClassifier) -> None:
    names = dict(linear_model.named_buffers())
    assert names
    assert not set(names) & set(received(linear_model))
    reference, batches = copy.deepcopy(linear_model), make_batches(linear_model)[:1]
    train_steps(reference, plain(reference), [batches], momentum=0.0)
    train_steps(linear_model, MoFedSAMObjective().local({}, linear_model), [batches], momentum=0.0)
    assert same(dict(linear_model.named_buffers()), dict(reference.named_buffers()))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *[("radius", value) for value in (-0.1, INF, NAN, True, "0.1", None)],
        *[("beta", value) for value in (-0.1, 0, 0.0, 1.0001, INF, NAN, True, "0.1", None)],
    ],
)
def test_a_value_out_of_range_is_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=rf"^{setting} is .*, expected a .*\.$"):
        make_objective({"name": "mosam", setting: value})
