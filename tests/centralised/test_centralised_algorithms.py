# SPDX-License-Identifier: Apache-2.0
"""What every centralised algorithm promises, and what each says of itself: exact cases, weights, switches."""

import math
from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.centralised import (
    ALGORITHMS,
    Algorithm,
    CentralisedERM,
    CentralisedFish,
    CentralisedFishr,
    CentralisedGroupDRO,
    CentralisedIGA,
    CentralisedIRM,
    CentralisedVREx,
    algorithm_settings,
    make_algorithm,
)
from fdg_plugins.lab.centralised.annealing import AnnealedPenalty
from fdg_plugins.lab.centralised.fish import interpolate
from fdg_plugins.lab.centralised.fishr import AVERAGES
from fdg_plugins.lab.centralised.groupdro import LOG_WEIGHTS, reweigh
from fdg_plugins.lab.centralised.irm import invariance_penalty
from fdg_plugins.lab.centralised.training import PooledTraining
from fdg_plugins.lab.centralised.vrex import risk_variance
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.randomness import seeded
from tests.centralised.pooled_batches import (
    CLASSES,
    ON_CPU,
    adam,
    normalised_network,
    same_bits,
    sgd,
    small_batches,
    small_network,
    trained,
)

PENALISED = [CentralisedIRM, CentralisedVREx, CentralisedFishr]


def name_of(algorithm: Algorithm | type[Algorithm]) -> str:
    return algorithm.name


def value_of(algorithm: Algorithm, model: ExtractorClassifier, step: int = 0) -> torch.Tensor:
    """Return the loss of a first step."""
    found = small_batches()
    return algorithm.loss(model, found, step, algorithm.begin(model, len(found))).value.detach()


# --- all of them -----------------------------------------------------------------------------------------------------


def test_the_catalogue_has_every_algorithm_in_the_order_of_tables() -> None:
    assert [kind.title for kind in ALGORITHMS.values()] == [
        "ERM", "IRM", "GroupDRO", "V-REx", "IGA", "Fish", "Fishr",
    ]  # fmt: skip
    assert {name: kind.name for name, kind in ALGORITHMS.items()} == {name: name for name in ALGORITHMS}


def test_the_defaults_are_domainbeds() -> None:
    assert {name: algorithm_settings(name) for name in ALGORITHMS} == {
        "erm": {},
        "irm": {"strength": 100.0, "warm_up": 500},
        "groupdro": {"step_size": 0.01},
        "vrex": {"strength": 10.0, "warm_up": 500},
        "iga": {"strength": 1000.0},
        "fish": {"meta_step": 0.5},
        "fishr": {"strength": 1000.0, "warm_up": 1500, "ema": 0.95},
    }


def test_a_whole_number_is_written_as_the_default_is() -> None:
    settings = make_algorithm("irm", {"strength": 7, "warm_up": 7}).settings()
    assert [type(value) for value in settings.values()] == [float, int]


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("dann", {}, "algorithm is 'dann', expected one of erm, irm, groupdro"),
        ("erm", {"strength": 1}, "algorithm 'erm' has no setting 'strength'; it has none."),
        ("irm", {"stength": 1}, "algorithm 'irm' has no setting 'stength'; it has strength, warm_up."),
        ("irm", {"strength": -1}, "strength is -1.0, expected a finite number of at least 0"),
        ("vrex", {"strength": "much"}, "strength is 'much'"),
        ("iga", {"strength": math.nan}, "strength is nan"),
        ("vrex", {"warm_up": 1.5}, "warm_up is 1.5, expected a whole number of at least 0"),
        ("fishr", {"warm_up": True}, "warm_up is True"),
        ("fishr", {"ema": 1}, "ema is 1"),
        ("fishr", {"ema": 1.1}, "ema is 1.1, expected a number from 0 to 1"),
        ("groupdro", {"step_size": -0.1}, "step_size is -0.1"),
        ("fish", {"meta_step": 2}, "meta_step is 2.0, expected a number from 0 to 1"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        make_algorithm(name, settings)
    assert sentence in str(refused.value)


def test_erm_with_one_domain_is_ordinary_training() -> None:
    own, plain = small_network(), small_network()
    trained(CentralisedERM(), own, steps=3, domains=1)
    optimizer = adam(plain)
    for number in range(3):
        ((images, labels),) = small_batches(1, seed=number)
        optimizer.zero_grad()
        cross_entropy(plain(images), labels).backward()
        optimizer.step()
    assert same_bits(own, plain)


def test_a_step_of_erm_is_a_round_of_fedavg_with_one_step_at_sites_of_equal_weight() -> None:
    pooled, batches = small_network(), small_batches()
    trained(CentralisedERM(), pooled, steps=1, optimizer=sgd)
    sites = [small_network() for _ in batches]
    for site, (images, labels) in zip(sites, batches, strict=True):
        optimizer = sgd(site)
        cross_entropy(site(images), labels).backward()
        optimizer.step()
    for name, value in pooled.state_dict().items():
        torch.testing.assert_close(value, torch.stack([site.state_dict()[name] for site in sites]).mean(dim=0))


# --- penalties that wait ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PENALISED, ids=name_of)
def test_the_strength_changes_at_the_switch_and_the_optimizer_starts_afresh(kind: type[AnnealedPenalty]) -> None:
    algorithm = kind(strength=5.0, warm_up=3)
    early = 0.0 if kind is CentralisedFishr else 1.0
    assert [algorithm.strength_at(step) for step in range(5)] == [early, early, early, 5.0, 5.0]
    made = []

    def make(model: ExtractorClassifier) -> torch.optim.Optimizer:
        made.append(adam(model))
        return made[-1]

    model = small_network()
    for steps, optimizers in ((3, 1), (4, 2), (6, 2)):
        made.clear()
        trained(algorithm, model, steps, optimizer=make)
        assert len(made) == optimizers
    assert {int(state["step"]) for state in made[-1].state.values()} == {3}


@pytest.mark.parametrize("kind", PENALISED, ids=name_of)
def test_without_strength_there_is_no_switch(kind: type[AnnealedPenalty]) -> None:
    algorithm = kind(strength=0.0, warm_up=3)
    assert algorithm.restarts_at is None
    assert {algorithm.strength_at(step) for step in range(6)} == {0.0}


@pytest.mark.parametrize("kind", [CentralisedIRM, CentralisedVREx], ids=name_of)
def test_the_loss_is_the_mean_risk_and_the_penalty_times_its_strength(kind: type[AnnealedPenalty]) -> None:
    model = small_network()
    mean = value_of(CentralisedERM(), model)
    penalties = [value_of(kind(strength=5.0, warm_up=1), model, step) - mean for step in (0, 1)]
    assert abs(float(penalties[0])) > 1e-5
    torch.testing.assert_close(penalties[1], 5 * penalties[0], rtol=1e-3, atol=1e-6)


# --- IRM -------------------------------------------------------------------------------------------------------------


def test_logits_of_zero_have_no_invariance_penalty() -> None:
    assert float(invariance_penalty(torch.zeros(6, 3), torch.tensor([0, 1, 2, 0, 1, 2]))) == 0.0


def test_the_invariance_penalty_of_two_images_in_closed_form() -> None:
    # Two classes, logits (a, 0): softmax(o)_0 = s(a). With label 0 the derivative is (s(a) - 1) a, with label 1 s(a) a.
    logits = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    first = 1 / (1 + math.exp(-1)) - 1
    second = 2 / (1 + math.exp(-2))
    found = float(invariance_penalty(logits, torch.tensor([0, 1])))
    assert found == pytest.approx(first * second)
    assert found < 0  # an unbiased estimate of a square may be negative


def test_halves_are_the_images_at_even_and_at_odd_places() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(5, 3, generator=generator), torch.tensor([0, 1, 2, 0, 1])
    within = torch.tensor([4, 3, 2, 1, 0])  # even places stay even, odd ones odd
    across = torch.tensor([1, 0, 2, 3, 4])
    penalty = invariance_penalty(logits, labels)
    torch.testing.assert_close(invariance_penalty(logits[within], labels[within]), penalty)
    assert not torch.isclose(invariance_penalty(logits[across], labels[across]), penalty)


# --- GroupDRO --------------------------------------------------------------------------------------------------------


def test_weights_follow_the_risks_by_the_exponential() -> None:
    # From uniform weights, with eta = 1 and risks 0 and log 2: 1/2 * (1, 2), rescaled.
    log_weights = reweigh(torch.tensor([0.5, 0.5], dtype=torch.float64).log(), torch.tensor([0.0, math.log(2)]), 1.0)
    torch.testing.assert_close(log_weights.exp(), torch.tensor([1 / 3, 2 / 3], dtype=torch.float64), rtol=0, atol=1e-7)


def test_equal_risks_leave_the_weights() -> None:
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    torch.testing.assert_close(reweigh(weights.log(), torch.full((3,), 1.7), 0.3).exp(), weights)


def test_after_many_steps_the_highest_risk_has_all_the_weight_and_may_lose_it_again() -> None:
    log_weights = torch.full((3,), 1 / 3, dtype=torch.float64).log()
    for highest, steps in ((1, 2000), (0, 4000)):  # 2000 steps leave exp(-1000): a weight kept as it is would be zero
        risks = torch.ones(3)
        risks[highest] = 2.0
        for _ in range(steps):
            log_weights = reweigh(log_weights, risks, 0.5)
        assert int(log_weights.argmax()) == highest
        assert float(log_weights.exp().max()) == pytest.approx(1.0)


def test_huge_risks_give_weights_and_no_nan() -> None:
    log_weights = reweigh(torch.zeros(2, dtype=torch.float64), torch.tensor([1e10, 0.0]), 1.0)
    assert log_weights.exp().tolist() == [1.0, 0.0]


def test_the_weights_move_before_the_loss_is_taken() -> None:
    model, batches = small_network(), small_batches()
    algorithm = CentralisedGroupDRO(step_size=2.0)
    loss = algorithm.loss(model, batches, 0, algorithm.begin(model, 3))
    weights = loss.state[LOG_WEIGHTS].exp()
    assert float(weights.sum()) == pytest.approx(1.0)
    assert weights.argmax() == loss.risks.argmax()
    assert float(loss.value.detach()) == pytest.approx(float((weights * loss.risks).sum()))
    assert float(loss.value.detach()) > float(loss.risks.mean())


# --- V-REx -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("risks", "penalty"), [([0.0, 2.0], 1.0), ([1.5, 1.5, 1.5], 0.0), ([4.0], 0.0)])
def test_the_variance_of_risks_has_the_divisor_m(risks: list[float], penalty: float) -> None:
    assert float(risk_variance(torch.tensor(risks))) == penalty


def test_the_gradient_through_the_mean_risk_cancels() -> None:
    risks = torch.tensor([0.3, 1.0, 2.5], requires_grad=True)
    (through,) = torch.autograd.grad(risk_variance(risks), risks)
    torch.testing.assert_close(through, 2 / 3 * (risks - risks.mean()).detach())


# --- IGA -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [CentralisedVREx(10.0, 0), CentralisedIGA(), CentralisedFishr(10.0, 0)])
def test_the_same_batch_in_every_domain_has_no_penalty(algorithm: Algorithm) -> None:
    model, batches = small_network(), small_batches(1) * 4
    loss = algorithm.loss(model, batches, 0, algorithm.begin(model, 4))
    assert float(loss.value.detach()) == pytest.approx(float(loss.risks.mean()), abs=1e-6)


class Attention(torch.nn.Module):
    """Features ``[B, 4]`` of images ``[B, 1, 3, 4]`` whose rows attend to each other."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = images[:, 0]
        attended, _ = self.attention(rows, rows, rows, need_weights=False)
        return attended.mean(dim=1)


def attentive_network() -> ExtractorClassifier:
    with seeded(0, "attention"):
        return ExtractorClassifier(Attention(), torch.nn.Linear(4, CLASSES))


def test_the_gradient_of_iga_through_attention_is_that_of_finite_differences() -> None:
    model, batches = attentive_network().double().train(), [(x.double(), y) for x, y in small_batches()]
    # Logits travel in float32, so a step must be large and the agreement is that of float32.
    weight = model.extractor.attention.in_proj_weight  # type: ignore[union-attr]
    assert isinstance(weight, torch.Tensor)
    algorithm = CentralisedIGA(strength=10.0)

    def value() -> torch.Tensor:
        return algorithm.loss(model, batches, 0, {}).value

    (gradient,) = torch.autograd.grad(value(), weight)
    direction, step = torch.randn_like(weight), 1e-2
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            weight.add_(direction, alpha=sign * step)
        ends.append(float(value().detach()))
        with torch.no_grad():
            weight.sub_(direction, alpha=sign * step)
    assert float((gradient * direction).sum()) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=2e-2)


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "mobilenet_v3_large"])
def test_a_network_without_second_derivatives_is_refused_by_name_and_left_as_it_was(name: str) -> None:
    model = build_model(name, CLASSES, seed=0)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    batch = small_batches(1, shape=(3, 32, 32))[0]
    for algorithm, is_refused in ((CentralisedIGA(), True), (CentralisedIGA(0.0), False), (CentralisedERM(), False)):
        training = PooledTraining(model, algorithm, [iter([batch])], partial(adam, model), ON_CPU)
        if is_refused:
            with pytest.raises(SettingsError, match=f"^model is '{name}', expected a network whose second derivatives"):
                training.check(batch, name, 0)
        else:
            training.check(batch, name, 0)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_the_check_of_second_derivatives_changes_neither_network_nor_generator() -> None:
    model, other = normalised_network(), normalised_network()
    training = PooledTraining(model, CentralisedIGA(), [], partial(adam, model), ON_CPU)
    drawn = torch.random.get_rng_state()
    training.check(small_batches(1, shape=(3, 16, 16))[0], "convnet", 0)
    assert torch.equal(drawn, torch.random.get_rng_state())
    assert same_bits(model, other)
    assert all(parameter.grad is None for parameter in model.parameters())


# --- Fish ------------------------------------------------------------------------------------------------------------


def ends_of_fish(meta_step: float) -> ExtractorClassifier:
    model = normalised_network()
    trained(CentralisedFish(meta_step), model, steps=1, shape=(3, 16, 16))
    return model


def test_a_whole_meta_step_ends_where_the_inner_steps_do() -> None:
    plain = normalised_network().train()
    optimizer = adam(plain)
    for images, labels in small_batches(shape=(3, 16, 16)):
        optimizer.zero_grad()
        cross_entropy(plain(images), labels).backward()
        optimizer.step()
    assert same_bits(ends_of_fish(1.0), plain)


def test_no_meta_step_leaves_the_parameters_and_keeps_the_inner_statistics() -> None:
    start, none, half, whole = normalised_network(), *(ends_of_fish(part) for part in (0.0, 0.5, 1.0))
    assert all(torch.equal(*pair) for pair in zip(start.parameters(), none.parameters(), strict=True))
    for one in (none, half):
        assert all(torch.equal(*pair) for pair in zip(one.buffers(), whole.buffers(), strict=True))
    assert not all(torch.equal(*pair) for pair in zip(start.buffers(), none.buffers(), strict=True))


def test_half_a_meta_step_ends_in_the_middle() -> None:
    start, half, whole = normalised_network(), ends_of_fish(0.5), ends_of_fish(1.0)
    for first, middle, last in zip(start.parameters(), half.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(middle, (first + last) / 2)


def test_interpolation_is_exact_at_both_ends() -> None:
    before = [torch.tensor([1e10, 0.1, -3e-8])]
    for fraction, expected in ((0.0, before[0]), (1.0, torch.tensor([0.3, 1e-7, 5.0]))):
        parameters = [torch.tensor([0.3, 1e-7, 5.0])]
        interpolate(parameters, before, fraction)
        assert torch.equal(parameters[0], expected)


def test_with_constant_gradients_fish_goes_as_far_as_m_eps_steps_of_erm() -> None:
    # Losses <g_e, theta>: plain SGD goes to theta - eta sum_e g_e, and Fish eps of that way.
    gradients = [torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.0, 3.0, 1.0])]
    theta = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([theta], lr=0.1)
    model = torch.nn.ParameterList([theta])
    inner = iter(gradients)

    def compute_gradients(batches: object) -> torch.Tensor:
        theta.grad = next(inner).clone()
        return torch.zeros(1)

    batches = small_batches(2)
    CentralisedFish(meta_step=0.3).update(model, batches, compute_gradients, optimizer)  # type: ignore[arg-type]
    torch.testing.assert_close(theta.detach(), -0.3 * 0.1 * (gradients[0] + gradients[1]))


def test_the_optimizers_moments_last_from_step_to_step() -> None:
    made: list[torch.optim.Optimizer] = []

    def make(model: ExtractorClassifier) -> torch.optim.Optimizer:
        made.append(adam(model))
        return made[-1]

    trained(CentralisedFish(), small_network(), steps=4, optimizer=make)
    assert len(made) == 1
    assert {int(state["step"]) for state in made[0].state.values()} == {4 * 3}


# --- Fishr -----------------------------------------------------------------------------------------------------------


def test_in_the_warm_up_fishr_is_erm_and_its_averages_move() -> None:
    own, plain = small_network(), small_network()
    training = trained(CentralisedFishr(strength=1000.0, warm_up=5), own)
    trained(CentralisedERM(), plain)
    assert same_bits(own, plain)
    assert float(training.state[AVERAGES].abs().sum()) > 0


def test_the_averages_follow_the_recurrence_and_the_first_is_used_plain() -> None:
    model, batches = small_network(), small_batches()
    alone = CentralisedFishr(strength=2.0, warm_up=0, ema=0.0)
    averaged = CentralisedFishr(strength=2.0, warm_up=0, ema=0.95)
    plain = alone.loss(model, batches, 0, alone.begin(model, 3))
    first = averaged.loss(model, batches, 0, averaged.begin(model, 3))
    torch.testing.assert_close(first.value, plain.value)
    torch.testing.assert_close(first.state[AVERAGES], 0.05 * plain.state[AVERAGES])
    second = averaged.loss(model, batches, 1, first.state)
    torch.testing.assert_close(second.state[AVERAGES], (0.95 * 0.05 + 0.05) * plain.state[AVERAGES])


def test_without_an_average_the_penalty_is_that_of_the_current_batch() -> None:
    model, algorithm = small_network(), CentralisedFishr(strength=2.0, warm_up=0, ema=0.0)
    earlier = algorithm.loss(model, small_batches(seed=5), 0, algorithm.begin(model, 3)).state
    fresh = algorithm.loss(model, small_batches(), 1, algorithm.begin(model, 3))
    later = algorithm.loss(model, small_batches(), 1, earlier)
    assert torch.equal(fresh.value, later.value)
