# SPDX-License-Identifier: Apache-2.0
"""FedSR: the loss is the published one, the references stay at the site, and without noise and terms it is FedAvg."""

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import cross_entropy, softplus

from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.fedsr import (
    SMALLEST_FACTOR,
    ClassReferences,
    FedSRObjective,
    LocalSimpleRepresentation,
    mean_length,
    parts,
)
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.models.gaussian import GaussianLayer
from fdg_plugins.objectives import SiteRound, Trained, build_network, make_objective
from fdg_plugins.randomness import torch_generator
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.state.site_memory import Kept
from fdg_plugins.training.results import TrainResult
from fdg_plugins.training.session import SiteSession
from tests.objectives.local_steps import same
from tests.objectives.objective_batches import CLASSES, Batch, Train, make_batches

SITE = SiteRound("photo", 3, seed=7)
NAMES = {"mean", "raw_scale", "factor"}
DONE = Trained({}, 1, 1.0)
ZERO: dict[str, Any] = {"l2_strength": 0, "cmi_strength": 0}


def adapted(model: ExtractorClassifier, seed: int = 1) -> ExtractorClassifier:
    return FedSRObjective().adapt(model, (3, 16, 16), seed)


@pytest.fixture
def network(model: ExtractorClassifier) -> ExtractorClassifier:
    """Each of the four models, as FedSR trains it."""
    return adapted(model)


@pytest.fixture
def linear_network(linear_model: ExtractorClassifier) -> ExtractorClassifier:
    """The model with BatchNorm and one linear layer, as FedSR trains it."""
    return adapted(linear_model)


def local_of(model: ExtractorClassifier, site: SiteRound = SITE, **settings: Any) -> LocalSimpleRepresentation:
    local = make_objective({"name": "sr", **settings}).local({}, model, site)
    assert isinstance(local, LocalSimpleRepresentation)
    return local


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def train_at_a_site(
    model: ExtractorClassifier, local: LocalSimpleRepresentation, batches: list[Batch], learning_rate: float = 0.05
) -> dict[str, torch.Tensor]:
    """Train model and references beside each other, as a site does; return the model's state."""
    own = [*model.parameters(), *local.parameters()]
    optimizer = torch.optim.SGD(own, lr=learning_rate, momentum=0.9, weight_decay=5e-4)
    for images, labels in batches:

        def gradients(images: torch.Tensor = images, labels: torch.Tensor = labels) -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = local.loss(model, images, labels)
            loss.backward()
            return loss.detach()

        local.step(model, gradients, optimizer)
    return {name: value.clone() for name, value in model.state_dict().items()}


# --- the network ---


def test_the_network_has_a_gaussian_layer_before_the_head_that_it_had(model: ExtractorClassifier) -> None:
    head = copy.deepcopy(model.classifier)
    size, layers = model.feature_size, len(head) if isinstance(head, nn.Sequential) else 1
    network = adapted(model).eval()
    gaussian, behind = parts(network)
    assert (gaussian.linear.in_features, gaussian.out_features) == (size, size)
    assert all(map(torch.equal, head.state_dict().values(), behind.state_dict().values()))
    assert len(head.state_dict()) == len(behind.state_dict())
    images = make_batches(network)[0][0]
    assert network.feature_size == size
    assert network.last_layer.out_features == CLASSES
    assert network.last_layer_names == (f"classifier.{layers}.weight", f"classifier.{layers}.bias")
    assert network.state_dict()[network.last_weight_name].data_ptr() == network.last_layer.weight.data_ptr()
    assert torch.equal(network(images), network.last_layer(network.penultimate(images)))
    assert torch.equal(network(images), head.eval()(gaussian(network.features(images))))


def test_the_seed_alone_decides_the_layer_and_no_global_generator_counts() -> None:
    states = []
    for seed in (5, 5, 6):
        before = torch.get_rng_state()
        network = adapted(build_model("convnet", CLASSES, seed=1), seed)
        assert torch.equal(torch.get_rng_state(), before)
        torch.rand(3)
        states.append(dict(network.state_dict()))
    assert same(states[0], states[1])
    changed = {name for name in states[0] if not torch.equal(states[0][name], states[2][name])}
    assert changed == {"classifier.0.linear.weight", "classifier.0.linear.bias"}


def test_the_global_model_is_judged_by_the_mean_and_has_one_answer(network: ExtractorClassifier) -> None:
    images = make_batches(network)[0][0]
    gaussian, head = parts(network.eval())
    assert torch.equal(network(images), network(images))
    torch.testing.assert_close(network(images), head(gaussian.distribution(network.features(images))[0]))


def test_a_network_that_was_not_adapted_is_refused(model: ExtractorClassifier) -> None:
    with pytest.raises(SettingsError, match=r"^the classifier of the model is a .* expected the network as .*\.$"):
        local_of(model)


# --- the loss ---


@pytest.mark.parametrize("norm", ["norm", "squared"])
def test_the_loss_is_the_published_one_of_the_drawn_sample(network: ExtractorClassifier, norm: str) -> None:
    network.eval()
    images, labels = make_batches(network)[0]
    local = local_of(network, l2_strength=0.3, cmi_strength=0.02, norm=norm)
    with torch.no_grad():
        for number, parameter in enumerate(local.parameters()):
            parameter.add_(0.2 * normal(number, *parameter.shape).abs())
    gaussian, head = parts(network)
    mean, scale = gaussian.distribution(network.features(images))
    z = mean + scale * torch.randn(mean.shape, generator=torch_generator(7, "photo", 3, "sr"))
    lengths = [math.sqrt(sum(v * v for v in row)) for row in z.tolist()]
    length = sum(length if norm == "norm" else length**2 for length in lengths) / len(lengths)
    r_mu, r_sigma, factor = (local.references.state_dict()[name] for name in ("mean", "raw_scale", "factor"))
    of_class = Normal(r_mu[labels], softplus(r_sigma)[labels])
    divergence = kl_divergence(Normal(factor * mean, factor * scale), of_class).sum(dim=1).mean()
    expected = cross_entropy(head(z), labels) + 0.3 * length + 0.02 * divergence
    torch.testing.assert_close(local.loss(network, images, labels), expected, rtol=1e-5, atol=1e-5)


def references_of(mean: torch.Tensor, raw_scale: torch.Tensor, factor: float = 1.0) -> ClassReferences:
    references = ClassReferences(*mean.shape).double()
    references.load_state_dict({"mean": mean, "raw_scale": raw_scale, "factor": torch.tensor(factor)})
    return references


def test_the_divergence_is_the_mean_over_the_batch_of_that_of_its_class() -> None:
    references = references_of(normal(0, 3, 4), normal(1, 3, 4), 0.7)
    mean, scale, labels = normal(2, 5, 4), normal(3, 5, 4).exp(), torch.tensor([0, 2, 2, 1, 0])
    of_class = Normal(references.mean[labels], softplus(references.raw_scale)[labels])
    expected = kl_divergence(Normal(0.7 * mean, 0.7 * scale), of_class).sum(dim=1).mean()
    torch.testing.assert_close(references.divergence(mean, scale, labels), expected, rtol=1e-6, atol=1e-6)


def test_the_divergence_of_a_hand_sized_example() -> None:
    # One coordinate, N(1, 2^2) against N(0, r^2) with r = softplus(1): log(r/2) + (4 + 1)/(2 r^2) - 1/2.
    references, r = ClassReferences(1, 1).double(), math.log(1 + math.e)
    divergence = references.divergence(torch.ones(1, 1).double(), torch.full((1, 1), 2.0).double(), torch.tensor([0]))
    assert r == pytest.approx(1.3133, abs=5e-5)
    assert divergence.item() == pytest.approx(math.log(r / 2) + 5 / (2 * r * r) - 0.5)


def test_features_at_the_reference_have_no_divergence_and_no_gradient_of_it() -> None:
    labels, factor = torch.tensor([0, 2, 1, 2]), 0.5
    references = references_of(normal(0, 3, 4), normal(1, 3, 4), factor)
    mean = (references.mean.detach()[labels] / factor).requires_grad_()
    scale = (softplus(references.raw_scale.detach())[labels] / factor).requires_grad_()
    divergence = references.divergence(mean, scale, labels)
    divergence.backward()
    assert divergence.item() == pytest.approx(0.0, abs=1e-12)
    for tensor in (mean, scale, *references.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.abs().max().item() == pytest.approx(0.0, abs=1e-12)
    assert references.divergence(mean + 0.1, scale, labels).item() > 0
    assert references.divergence(mean, 1.1 * scale, labels).item() > 0


def test_gradients_agree_with_finite_differences_in_double_precision() -> None:
    labels = torch.tensor([0, 2, 0])

    def divergence(mean: torch.Tensor, raw: torch.Tensor, r_mu: torch.Tensor, r_sigma: torch.Tensor, c: Any) -> Any:
        own = {"mean": r_mu, "raw_scale": r_sigma, "factor": c}
        arguments = (mean, softplus(raw), labels)
        return torch.func.functional_call(Divergence(), {f"of.{name}": value for name, value in own.items()}, arguments)

    class Divergence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.of = ClassReferences(3, 2).double()

        def forward(self, *arguments: torch.Tensor) -> torch.Tensor:
            return self.of.divergence(*arguments)

    inputs = (normal(0, 3, 2), normal(1, 3, 2), normal(2, 3, 2), normal(3, 3, 2), torch.tensor(0.8).double())
    assert torch.autograd.gradcheck(divergence, [one.requires_grad_() for one in inputs])


def test_lengths_are_euclidean_or_squared_and_a_sample_at_zero_has_a_gradient() -> None:
    samples = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    assert mean_length(samples, "norm").item() == 2.5
    assert mean_length(samples, "squared").item() == 12.5
    mean_length(samples, "norm").backward()
    assert samples.grad is not None
    assert samples.grad.tolist() == [[pytest.approx(0.3), pytest.approx(0.4)], [0.0, 0.0]]


@pytest.mark.parametrize("strength", ["l2_strength", "cmi_strength"])
def test_a_strength_moves_the_loss_by_a_multiple_of_it(linear_network: ExtractorClassifier, strength: str) -> None:
    linear_network.eval()
    images, labels = make_batches(linear_network)[0]
    losses = [
        local_of(linear_network, **{**ZERO, strength: value}).loss(linear_network, images, labels).item()
        for value in (0.0, 1.0, 2.0)
    ]
    assert losses[1] > losses[0]
    assert losses[2] - losses[1] == pytest.approx(losses[1] - losses[0], rel=1e-4)


def test_autocast_leaves_the_penalties_in_float32(linear_network: ExtractorClassifier) -> None:
    images, labels = make_batches(linear_network)[0]
    exact = local_of(linear_network).loss(linear_network, images, labels)
    local = local_of(linear_network)
    with torch.autocast("cpu", torch.bfloat16):
        loss = local.loss(linear_network, images, labels)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=0.05)
    for parameter in (*linear_network.parameters(), *local.parameters()):
        assert parameter.grad is not None
        assert bool(parameter.grad.isfinite().all())


# --- the neutral setting, and randomness ---


def certain(self: GaussianLayer, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The distribution whose scale is zero."""
    mean = self.linear(features).chunk(2, dim=1)[0]
    return mean, torch.zeros_like(mean)


def test_without_terms_and_at_scale_zero_training_is_fedavgs_of_the_same_network_to_the_bit(
    network: ExtractorClassifier, batches: list[Batch], train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GaussianLayer, "distribution", certain)
    plain = copy.deepcopy(network)
    expected = train(plain, make_objective("erm").local({}, plain), batches)
    assert same(train(network, local_of(network, **ZERO), batches), expected)


def test_without_terms_alone_the_noise_is_left(
    linear_network: ExtractorClassifier, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, batches = copy.deepcopy(linear_network), make_batches(linear_network)
    expected = train(plain, make_objective("erm").local({}, plain), batches)
    assert not same(train(linear_network, local_of(linear_network, **ZERO), batches), expected)


def test_two_rounds_alike_agree_and_the_noise_follows_seed_site_and_round(linear_network: ExtractorClassifier) -> None:
    batches = make_batches(linear_network)

    def trained(site: SiteRound) -> dict[str, torch.Tensor]:
        torch.rand(3)  # no global generator counts
        model = copy.deepcopy(linear_network)
        return train_at_a_site(model, local_of(model, site), batches)

    others = [SiteRound("sketch", 3, seed=7), SiteRound("photo", 4, seed=7), SiteRound("photo", 3, seed=8)]
    assert same(trained(SITE), trained(SITE))
    assert not any(same(trained(other), trained(SITE)) for other in others)


def test_every_step_draws_anew(linear_network: ExtractorClassifier) -> None:
    linear_network.eval()
    local, (images, labels) = local_of(linear_network), make_batches(linear_network)[0]
    assert local.loss(linear_network, images, labels) != local.loss(linear_network, images, labels)


# --- the references: personal, kept, positive ---


def test_references_start_as_published_and_are_trained_by_the_sites_optimizer(
    network: ExtractorClassifier, batches: list[Batch]
) -> None:
    local, size = local_of(network), network.feature_size
    start = local.memory(DONE)
    assert {name: tuple(value.shape) for name, value in start.items()} == {
        "mean": (CLASSES, size),
        "raw_scale": (CLASSES, size),
        "factor": (),
    }
    assert [float(start[name].sum()) for name in ("mean", "raw_scale", "factor")] == [0.0, CLASSES * size, 1.0]
    train_at_a_site(network, local, batches)
    moved = local.memory(DONE)
    assert not any(torch.equal(start[name], moved[name]) for name in NAMES)


def test_a_later_round_goes_on_from_what_the_site_kept(linear_network: ExtractorClassifier) -> None:
    local, batches = local_of(linear_network), make_batches(linear_network)
    train_at_a_site(linear_network, local, batches)
    kept = local.memory(DONE)
    later = local_of(linear_network, SiteRound("photo", 9, seed=7, memory=kept))
    assert same(later.memory(DONE), kept)
    train_at_a_site(linear_network, later, batches)
    assert same(kept, local.memory(DONE))  # what was kept is not a view of what is trained
    assert not same(later.memory(DONE), kept)


def test_a_class_that_the_site_lacks_has_no_gradient(linear_network: ExtractorClassifier) -> None:
    images = make_batches(linear_network, (4,))[0][0]
    local = local_of(linear_network)
    local.loss(linear_network, images, torch.tensor([0, 2, 2, 0])).backward()
    for table in (local.references.mean, local.references.raw_scale):
        assert table.grad is not None
        assert table.grad[1].abs().max() == 0.0
        assert table.grad[[0, 2]].abs().min(dim=1).values.min() > 0.0
        assert bool(table.grad.isfinite().all())


def test_the_factor_is_put_back_before_it_reaches_zero(linear_network: ExtractorClassifier) -> None:
    local = local_of(linear_network)

    def gradients() -> torch.Tensor:
        local.references.factor.grad = torch.tensor(1e6)
        return torch.zeros(())

    local.step(linear_network, gradients, torch.optim.SGD(local.parameters(), lr=1.0))
    assert local.references.factor.item() == SMALLEST_FACTOR
    kept = local.memory(DONE)
    again = local_of(linear_network, SiteRound("photo", memory=kept))  # the limit itself may be kept
    assert bool(again.loss(linear_network, *make_batches(linear_network)[0]).isfinite())


def test_scales_that_round_to_zero_give_numbers(linear_network: ExtractorClassifier) -> None:
    gaussian, _ = parts(linear_network)
    local = local_of(linear_network, l2_strength=1, cmi_strength=1)
    with torch.no_grad():
        gaussian.linear.bias[gaussian.out_features :] = -500.0
        local.references.raw_scale.fill_(-500.0)
    loss = local.loss(linear_network, *make_batches(linear_network)[0])
    loss.backward()
    assert bool(loss.isfinite())
    for parameter in (*linear_network.parameters(), *local.parameters()):
        assert parameter.grad is not None
        assert bool(parameter.grad.isfinite().all())


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e16])
def test_a_round_that_lost_its_way_keeps_nothing_so_that_the_earlier_references_stay(
    linear_network: ExtractorClassifier, value: float
) -> None:
    local = local_of(linear_network)
    with torch.no_grad():
        local.references.mean[0, 0] = value
    assert local.memory(DONE) == {}


def kept_memory(size: int = 128) -> dict[str, torch.Tensor]:
    return {"mean": torch.zeros(CLASSES, size), "raw_scale": torch.ones(CLASSES, size), "factor": torch.ones(())}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mean": torch.zeros(2, 128)}, r"'mean' has shape \[2, 128\], expected \[3, 128\]"),
        ({"raw_scale": torch.full((CLASSES, 128), math.nan)}, "'raw_scale' has 384 values that are NaN"),
        ({"factor": torch.zeros(())}, "'factor' is 0, expected at least 0.0078125"),
        ({"factor": torch.tensor(-1.0)}, "'factor' is -1, expected at least"),
        ({"more": torch.zeros(1)}, "sent 'more', expected only factor, mean, raw_scale"),
    ],
)
def test_memory_that_does_not_fit_is_refused_by_name(
    linear_network: ExtractorClassifier, change: dict[str, torch.Tensor], reason: str
) -> None:
    with pytest.raises(SettingsError, match=rf"^memory of site photo: .*{reason}.*\.$"):
        local_of(linear_network, SiteRound("photo", memory={**kept_memory(), **change}))


# --- at a site ---


def test_nothing_of_the_references_leaves_the_site_and_the_next_round_goes_on_from_them(data_root: Path) -> None:
    protocol = Protocol(
        model="convnet",
        target="sketch",
        image_size=16,
        local_epochs=1,
        batch_size=8,
        rounds=3,
        objective={"name": "sr"},
    )
    site = SiteSession("photo", SiteConfig(device="cpu", data_root=data_root), protocol)
    state = dict(build_network(protocol, len(site.data.classes)).state_dict())

    def train(number: int, memory: Mapping[str, torch.Tensor]) -> TrainResult:
        return site.train(state, number, lambda: False, lambda epoch, loss: None, kept=Kept(memory))

    first = train(0, {})
    assert first.update.keys() == state.keys()
    assert {"classifier.0.linear.weight", "classifier.1.weight"} <= state.keys()
    assert first.tensors == {}
    assert set(first.kept.memory) == NAMES
    assert not any(name.rpartition(".")[2] in NAMES for name in first.update)
    assert all(bool(first.update[name].any()) for name in ("classifier.0.linear.weight", "classifier.1.weight"))
    fresh, later = train(2, {}), train(2, first.kept.memory)
    assert not same(fresh.update, later.update)
    assert not same(fresh.kept.memory, later.kept.memory)


# --- settings ---


def test_defaults_are_those_of_the_released_code() -> None:
    assert make_objective("sr") == FedSRObjective(0.01, 0.001, "norm")


@pytest.mark.parametrize(
    ("setting", "value"), [("l2_strength", -1), ("cmi_strength", math.inf), ("cmi_strength", "much"), ("norm", "l1")]
)
def test_a_value_out_of_range_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"^{setting} is .*, expected .*\.$"):
        make_objective({"name": "sr", setting: value})


def test_nothing_is_exchanged_and_nothing_may_be_received(linear_network: ExtractorClassifier) -> None:
    objective = make_objective("sr")
    assert objective.exchange(linear_network, CLASSES) is None
    assert objective.report is None
    assert local_of(linear_network).report(DONE) == {}
    with pytest.raises(SettingsError, match=r"^sent for objective 'sr': sent 'mean', expected only nothing\.$"):
        objective.local({"mean": torch.zeros(1)}, linear_network, SITE)
