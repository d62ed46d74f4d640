# SPDX-License-Identifier: Apache-2.0
"""The algorithms of references: terms and gradients by hand and by autograd, steps of their own."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.centralised import ALGORITHMS, algorithm_settings, make_algorithm
from fdg_plugins.lab.centralised.algorithm import AnnealedPenalty, Batch, CentralisedERM
from fdg_plugins.lab.centralised.algorithms import (
    LOG_WEIGHTS,
    CentralisedFish,
    CentralisedGroupDRO,
    CentralisedIGA,
    CentralisedIRM,
    CentralisedVREx,
    gradient_spread,
    invariance_penalty,
    reweigh,
    risk_variance,
    scale_derivative,
)
from fdg_plugins.lab.centralised.fishr import (
    AVERAGES,
    CentralisedFishr,
    gradient_variances,
    head_gradients,
    variance_spread,
)
from fdg_plugins.models import ExtractorClassifier, Network
from fdg_plugins.randomness import seeded
from tests.centralised.contract import (
    CLASSES,
    adam,
    equal,
    normalised_network,
    sgd,
    small_batches,
    small_network,
    trained,
)
from tests.tiny_networks import tiny_vit


def test_the_defaults_are_domainbeds() -> None:
    assert {name: algorithm_settings(name) for name in ALGORITHMS} == {
        "erm": {},
        "irm": {"strength": 100.0, "warm_up": 500},
        "groupdro": {"step_size": 0.01},
        "vrex": {"strength": 10.0, "warm_up": 500},
        "iga": {"strength": 1000.0},
        "fish": {"meta_step": 0.5},
        "fishr": {"strength": 1000.0, "warm_up": 1500, "ema": 0.95},
        "local": {},
    }
    assert {name: kind.name for name, kind in ALGORITHMS.items()} == {name: name for name in ALGORITHMS}
    settings = make_algorithm("irm", {"strength": 7, "warm_up": 7}).settings()
    assert [type(value) for value in settings.values()] == [float, int], "written as the defaults are"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(("dann", {}), ("erm", {"strength": 1}), ("irm", {"stength": 1}), ("irm", {"strength": -1})),
        *(
            ("iga", {"strength": math.nan}),
            ("vrex", {"warm_up": 1.5}),
            ("fishr", {"ema": 1}),
            ("fish", {"meta_step": 2}),
        ),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        make_algorithm(name, settings)


def test_a_step_of_erm_is_a_round_of_fedavg_with_one_step_at_sites_of_equal_weight() -> None:
    pooled, batches = small_network(), small_batches()
    trained(CentralisedERM(), pooled, steps=1, optimizer=sgd)
    sites = [small_network() for _ in batches]
    for site, (images, labels) in zip(sites, batches, strict=True):
        cross_entropy(site(images), labels).backward()
        sgd(site).step()
    for name, value in pooled.state_dict().items():
        torch.testing.assert_close(value, torch.stack([site.state_dict()[name] for site in sites]).mean(dim=0))


def counting() -> tuple[list[torch.optim.Optimizer], Callable[[ExtractorClassifier], torch.optim.Optimizer]]:
    """Return a list, and a function that makes optimizers and adds them to it."""
    made: list[torch.optim.Optimizer] = []

    def make(model: ExtractorClassifier) -> torch.optim.Optimizer:
        made.append(adam(model))
        return made[-1]

    return made, make


@pytest.mark.parametrize("kind", [CentralisedIRM, CentralisedVREx, CentralisedFishr])
def test_the_strength_changes_at_the_switch_and_the_optimizer_starts_afresh(kind: type[AnnealedPenalty]) -> None:
    algorithm = kind(strength=5.0, warm_up=3)
    early = 0.0 if kind is CentralisedFishr else 1.0
    assert [algorithm.strength_at(step) for step in range(5)] == [early, early, early, 5.0, 5.0]
    for steps, optimizers in ((3, 1), (4, 2), (6, 2)):
        made, make = counting()
        trained(algorithm, small_network(), steps, optimizer=make)
        assert len(made) == optimizers
    assert {int(state["step"]) for state in made[-1].state.values()} == {3}
    off = kind(strength=0.0, warm_up=3)
    assert (off.restarts_at, {off.strength_at(step) for step in range(6)}) == (None, {0.0})


@pytest.mark.parametrize("kind", [CentralisedIRM, CentralisedVREx])
def test_the_loss_is_the_mean_risk_and_the_penalty_times_its_strength(kind: type[AnnealedPenalty]) -> None:
    model, batches = small_network(), small_batches()
    losses = [kind(strength=5.0, warm_up=1).loss(model, batches, step, {}) for step in (0, 1)]
    penalties = [(loss.value - loss.risks.mean()).detach() for loss in losses]
    assert abs(float(penalties[0])) > 1e-5
    torch.testing.assert_close(penalties[1], 5 * penalties[0], rtol=1e-3, atol=1e-6)


def test_the_invariance_penalty_in_closed_form() -> None:
    # Two classes, logits (a, 0): softmax(o)_0 = s(a). With label 0 the derivative is (s(a) - 1) a, with label 1 s(a) a.
    logits = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    expected = (1 / (1 + math.exp(-1)) - 1) * 2 / (1 + math.exp(-2))
    found = float(invariance_penalty(logits, torch.tensor([0, 1])))
    assert found == pytest.approx(expected)
    assert found < 0  # an unbiased estimate of a square may be negative
    assert float(invariance_penalty(torch.zeros(6, 3), torch.tensor([0, 1, 2, 0, 1, 2]))) == 0.0


def test_weights_follow_the_risks_by_the_exponential() -> None:
    # From uniform weights, with eta = 1 and risks 0 and log 2: 1/2 * (1, 2), rescaled.
    log_weights = reweigh(torch.tensor([0.5, 0.5], dtype=torch.float64).log(), torch.tensor([0.0, math.log(2)]), 1.0)
    torch.testing.assert_close(log_weights.exp(), torch.tensor([1 / 3, 2 / 3], dtype=torch.float64), rtol=0, atol=1e-7)
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    torch.testing.assert_close(reweigh(weights.log(), torch.full((3,), 1.7), 0.3).exp(), weights)
    huge = reweigh(torch.zeros(2, dtype=torch.float64), torch.tensor([1e10, 0.0]), 1.0)
    assert huge.exp().tolist() == [1.0, 0.0]


def test_the_weights_move_before_the_loss_is_taken() -> None:
    model, algorithm = small_network(), CentralisedGroupDRO(step_size=2.0)
    loss = algorithm.loss(model, small_batches(), 0, algorithm.begin(model, 3))
    weights = loss.state[LOG_WEIGHTS].exp()
    assert float(weights.sum()) == pytest.approx(1.0)
    assert weights.argmax() == loss.risks.argmax()
    assert float(loss.value.detach()) == pytest.approx(float((weights * loss.risks).sum()))


def test_the_variance_of_risks_has_the_divisor_m() -> None:
    for risks, penalty in (([0.0, 2.0], 1.0), ([1.5, 1.5, 1.5], 0.0), ([4.0], 0.0)):
        assert float(risk_variance(torch.tensor(risks))) == penalty


def test_fish_goes_part_of_the_way_to_where_its_inner_steps_end() -> None:
    plain = normalised_network().train()
    optimizer = adam(plain)
    for images, labels in small_batches(shape=(3, 16, 16)):
        optimizer.zero_grad()
        cross_entropy(plain(images), labels).backward()
        optimizer.step()
    start, none, half, whole = (normalised_network() for _ in range(4))
    for meta_step, model in ((0.0, none), (0.5, half), (1.0, whole)):
        trained(CentralisedFish(meta_step), model, steps=1, shape=(3, 16, 16))
    assert equal(whole, plain)
    assert all(torch.equal(*pair) for pair in zip(start.parameters(), none.parameters(), strict=True))
    for first, middle, last in zip(start.parameters(), half.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(middle, (first + last) / 2)
    for one in (none, half):  # statistics are those after the inner steps
        assert all(torch.equal(*pair) for pair in zip(one.buffers(), whole.buffers(), strict=True))
    made, make = counting()
    trained(CentralisedFish(), small_network(), steps=4, optimizer=make)
    assert {int(state["step"]) for state in made[0].state.values()} == {4 * 3}, "one optimizer for all steps"
    assert len(made) == 1


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
    earlier = alone.loss(model, small_batches(seed=5), 0, alone.begin(model, 3)).state
    assert torch.equal(alone.loss(model, batches, 1, earlier).value, plain.value), "the current batch only"


def double_batches() -> list[Batch]:
    return [(images.double(), labels) for images, labels in small_batches(size=4)]


def risks_of(model: ExtractorClassifier, batches: Sequence[Batch]) -> torch.Tensor:
    return torch.stack([cross_entropy(model(images), labels) for images, labels in batches])


def flat(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


def test_the_derivative_by_the_scale_of_the_logits_is_that_of_autograd() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, CLASSES, dtype=torch.float64, generator=generator, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    (naive,) = torch.autograd.grad(cross_entropy(scale * logits, labels), scale, create_graph=True)
    closed = scale_derivative(logits, labels)
    torch.testing.assert_close(closed, naive)
    # and so is its own gradient, which training follows
    slopes = [torch.autograd.grad(value**2, logits, retain_graph=True) for value in (closed, naive)]
    torch.testing.assert_close(*slopes)


def test_the_spread_of_gradients_and_its_gradient_are_those_of_autograd() -> None:
    model, batches = small_network().double(), double_batches()
    parameters = list(model.parameters())
    spread = gradient_spread(risks_of(model, batches), parameters)
    rows = [flat(torch.autograd.grad(risk, parameters, create_graph=True)) for risk in risks_of(model, batches)]
    gradients = torch.stack(rows)
    naive = ((gradients - gradients.mean(dim=0)) ** 2).sum()
    assert float(spread.detach()) > 1e-4
    torch.testing.assert_close(spread, naive)
    for own, other in zip(torch.autograd.grad(spread, parameters), torch.autograd.grad(naive, parameters), strict=True):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize("two_layer", [False, True])
def test_the_penalty_on_variances_and_its_gradient_are_those_of_autograd(two_layer: bool) -> None:
    model, batches = small_network(two_layer=two_layer).double(), double_batches()
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    gradients = head_gradients(model.classifier, model.features(images), labels)
    closed = variance_spread(gradient_variances(gradients, batches))
    head, variances = list(model.classifier.parameters()), []
    for batch in batches:
        pairs = zip(*(part.split(1) for part in batch), strict=True)
        losses = [cross_entropy(model(image), label) for image, label in pairs]
        own = torch.stack([flat(torch.autograd.grad(loss, head, create_graph=True)) for loss in losses])
        variances.append(((own - own.mean(dim=0)) ** 2).mean(dim=0))
    mean = sum(variances) / len(variances)
    naive = sum(((own - mean) ** 2).mean() for own in variances) / len(variances)
    assert isinstance(naive, torch.Tensor)
    torch.testing.assert_close(closed, naive)
    parameters = list(model.parameters())  # the extractor's too: through features and softmax
    found, expected = (torch.autograd.grad(value, parameters) for value in (closed, naive))
    assert all(float(gradient.abs().max()) > 0 for gradient in found)
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other)


def test_the_gradient_of_iga_through_attention_is_that_of_finite_differences() -> None:
    with seeded(0, "attention"):
        extractor, features = Network(name="tiny", build=tiny_vit).extractor(CLASSES, image_size=16)
        model = ExtractorClassifier(extractor, torch.nn.Linear(features, CLASSES)).double().eval()
    weight = model.get_parameter("extractor.encoder.layers.encoder_layer_0.self_attention.in_proj_weight")
    drawn, algorithm = small_batches(shape=(3, 16, 16)), CentralisedIGA(10.0)
    batches = [(images.double(), labels) for images, labels in drawn]
    (gradient,) = torch.autograd.grad(algorithm.loss(model, batches, 0, {}).value, weight)
    # Logits travel in float32, so a step must be large and the agreement is that of float32.
    generator = torch.Generator().manual_seed(1)
    direction, step, ends = torch.randn(weight.shape, generator=generator, dtype=weight.dtype), 1e-2, []
    for sign in (1, -2):  # first up, then down past the start
        with torch.no_grad():
            weight.add_(direction, alpha=sign * step)
        ends.append(float(algorithm.loss(model, batches, 0, {}).value.detach()))
    assert float((gradient * direction).sum()) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=2e-2)
