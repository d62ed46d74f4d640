# SPDX-License-Identifier: Apache-2.0
"""FedADG: three steps in order, each of which moves what it should; D stays at the site, G travels."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.fedadg import WEIGHT_DECAY, FedADGObjective, LocalAdversarial, generating_network
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.adversarial import GeneratingClassifier, class_code
from fdg_plugins.objectives import SiteRound, Trained, build_network, make_objective
from fdg_plugins.randomness import torch_generator
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.session import SiteSession
from tests.objectives.local_steps import train_steps
from tests.objectives.objective_batches import CLASSES, Train, make_batches

SITE = SiteRound("photo", 3, seed=7, learning_rate=0.05, momentum=0.9)
DONE = Trained({}, 1, 1.0)
State = dict[str, torch.Tensor]


def adapted(model: ExtractorClassifier, seed: int = 1, **settings: Any) -> ExtractorClassifier:
    return FedADGObjective(**settings).adapt(copy.deepcopy(model), (3, 16, 16), seed).train()


@pytest.fixture
def network(linear_model: ExtractorClassifier) -> GeneratingClassifier:
    """The network with BatchNorm and one linear layer, with a generator."""
    return generating_network(adapted(linear_model))


def local_of(model: ExtractorClassifier, site: SiteRound = SITE, **settings: Any) -> LocalAdversarial:
    local = make_objective({"name": "adg", **settings}).local({}, model, site)
    assert isinstance(local, LocalAdversarial)
    return local


def copy_of(module: nn.Module) -> State:
    return {name: value.clone() for name, value in module.state_dict().items()}


def smoothed(labels: torch.Tensor, share: float) -> torch.Tensor:
    """Return the probabilities of classes: ``1 - share`` of the label, the rest evenly of the others."""
    right = labels[:, None] == torch.arange(CLASSES)
    return torch.where(right, 1 - share, share / (CLASSES - 1))


def test_training_is_the_three_steps_written_out(linear_model: ExtractorClassifier) -> None:
    network = generating_network(adapted(linear_model))
    by_hand = copy.deepcopy(network)
    batches = make_batches(network)
    local = local_of(network, classification_weight=0.6, smoothing=0.1, adversary_rate=0.5)
    d = copy.deepcopy(local.discriminator)
    train_steps(network, local, [batches, batches])

    f_and_c = [*by_hand.extractor.parameters(), *by_hand.classifier.parameters()]
    of_network = torch.optim.SGD(f_and_c, lr=0.05, momentum=0.9, weight_decay=5e-4)
    of_d = torch.optim.SGD(d.parameters(), lr=0.025, momentum=0.9, weight_decay=WEIGHT_DECAY)
    of_g = torch.optim.SGD(by_hand.generator.parameters(), lr=0.025, momentum=0.9, weight_decay=WEIGHT_DECAY)
    noise = torch_generator(7, "photo", 3, "adg")
    for images, labels in [*batches, *batches]:
        code = class_code(labels, CLASSES)
        u = torch.rand(len(code), 128, generator=noise)  # one draw for the steps of D and G

        def g(code: torch.Tensor = code, u: torch.Tensor = u) -> torch.Tensor:
            return by_hand.generator(u, code)

        z = by_hand.features(images)
        step(of_d, ((1 - d(g().detach(), code)) ** 2 + d(z.detach(), code) ** 2).mean())
        classification = cross_entropy(by_hand.classifier(z), smoothed(labels, 0.1))
        step(of_network, 0.6 * classification + 0.4 * ((1 - d(z, code)) ** 2).mean())
        step(of_g, (d(g(), code) ** 2).mean())
    torch.testing.assert_close(copy_of(network), copy_of(by_hand), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(copy_of(local.discriminator), copy_of(d), rtol=1e-4, atol=1e-5)


def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """Step down ``loss`` with the parameters of ``optimizer`` alone."""
    parameters = optimizer.param_groups[0]["params"]
    optimizer.zero_grad(set_to_none=True)
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    optimizer.step()


def test_every_part_is_trained_and_the_reported_loss_is_that_of_the_network(network: GeneratingClassifier) -> None:
    local, before = local_of(network), copy_of(network)
    of_d = copy_of(local.discriminator)
    batch = make_batches(network)[:1]
    plain = copy.deepcopy(network)
    loss = train_steps(network, local, [batch]).epoch_losses[0]
    after = copy_of(network)
    assert not any(torch.equal(before[name], after[name]) for name in before if name.endswith("weight"))
    assert not any(torch.equal(of_d[name], value) for name, value in copy_of(local.discriminator).items())
    z, (images, labels) = plain.features(batch[0][0]), batch[0]
    judged = local.discriminator(z, class_code(labels, CLASSES))  # D after its one step
    expected = 0.85 * cross_entropy(plain.classifier(z), smoothed(labels, 0.01))
    expected = expected + 0.15 * ((1 - judged) ** 2).mean()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    assert len(images) == 4


def test_a_discriminator_that_knows_nothing_costs_a_half_and_a_quarter(network: GeneratingClassifier) -> None:
    local = local_of(network, classification_weight=0, smoothing=0)
    with torch.no_grad():
        for parameter in local.discriminator.parameters():
            parameter.zero_()
    images, labels = make_batches(network)[0]
    features = network.features(images)
    assert local.discriminator_loss(network, features, labels).item() == pytest.approx(0.5)
    assert local.loss(network, images, labels).item() == pytest.approx(0.25 + 0.25)  # of the features, of the generator


@pytest.mark.parametrize("share", [0.01, 0.2, 1.0])
def test_a_smoothed_label_leaves_its_share_to_the_other_classes_alone(
    linear_model: ExtractorClassifier, share: float
) -> None:
    model = linear_model.eval()
    local = make_objective({"name": "adg", "classification_weight": 1, "smoothing": share}).local({}, model, SITE)
    images, labels = make_batches(model)[0]
    expected = cross_entropy(model(images), smoothed(labels, share))
    torch.testing.assert_close(local.loss(model, images, labels), expected)


@pytest.mark.parametrize("target", [0, 1])
def test_the_generator_aims_at_its_target(network: GeneratingClassifier, target: int) -> None:
    local = local_of(network, generator_target=target)
    images, labels = make_batches(network)[0]
    before, after = copy.deepcopy(network.generator), network.generator
    for _ in range(30):
        local.loss(network, images, labels).backward()
        local.generator_optimizer.step()
        local.generator_optimizer.zero_grad()
    code = class_code(labels, CLASSES)
    noise = torch.rand(len(code), 128, generator=torch.Generator().manual_seed(0))
    found = [float(local.discriminator(g(noise, code).detach(), code).mean()) for g in (before, after)]
    assert (found[1] > found[0]) == (target == 1)


def test_the_gradient_of_the_first_step_reaches_the_discriminator_alone(network: GeneratingClassifier) -> None:
    local = local_of(network)
    images, labels = make_batches(network)[0]
    local.discriminator_loss(network, network.features(images), labels).backward()
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(parameter.grad is not None for parameter in local.discriminator.parameters())


def test_the_adversary_is_computed_in_float32_even_under_autocast(
    network: GeneratingClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = make_batches(network)[0]
    features = network.features(images).detach()
    monkeypatch.setattr(network, "features", lambda _: features)
    monkeypatch.setattr(LocalAdversarial, "classification_loss", lambda *_: features.new_zeros(()))

    def losses() -> tuple[torch.Tensor, torch.Tensor]:
        local = local_of(network)  # anew, for the same draws
        return local.discriminator_loss(network, features, labels), local.loss(network, images, labels)

    exact = losses()
    with torch.autocast("cpu", torch.bfloat16):
        assert all(map(torch.equal, losses(), exact))


def test_the_other_steps_leave_no_gradient_at_the_discriminator(network: GeneratingClassifier) -> None:
    local = local_of(network)
    local.loss(network, *make_batches(network)[0]).backward()
    assert all(parameter.grad is None for parameter in local.discriminator.parameters())


def test_a_class_that_the_site_lacks_does_not_train_the_generator_on_it(network: GeneratingClassifier) -> None:
    images = make_batches(network)[0][0]
    local_of(network).loss(network, images, torch.tensor([0, 2, 2, 0])).backward()
    gradient = network.generator.layers[0].weight.grad
    assert isinstance(gradient, torch.Tensor)
    assert gradient[:, 128 + 1].abs().max() == 0.0
    assert gradient[:, 128 + 2].abs().max() > 0.0


# --- first epochs, neutral settings ---


@pytest.mark.parametrize(
    ("warmup", "epochs", "warm"), [(0.3, 10, 3), (0.3, 5, 1), (0.3, 1, 0), (1.0, 2, 2), (0.0, 2, 0)]
)
def test_the_share_of_the_first_epochs_is_rounded_down(
    network: GeneratingClassifier, warmup: float, epochs: int, warm: int
) -> None:
    site = SiteRound("photo", learning_rate=0.05, epochs=epochs)
    local = local_of(network, site, warmup=warmup)
    found = []
    for _ in range(epochs):
        local.prepare(network)
        found.append(local.is_warming_up)
    assert found == [True] * warm + [False] * (epochs - warm)


def test_in_the_first_epochs_generator_and_discriminator_stay_and_the_rest_learns_smoothed_labels(
    network: GeneratingClassifier, linear_model: ExtractorClassifier
) -> None:
    batches = make_batches(network)
    site = SiteRound("photo", 3, seed=7, learning_rate=0.05, momentum=0.9, epochs=2)
    local = local_of(network, site, warmup=1.0, smoothing=0.2)
    of_d, of_g = copy_of(local.discriminator), copy_of(network.generator)
    train_steps(network, local, [batches, batches])
    assert same_bits(copy_of(local.discriminator), of_d)
    assert same_bits(copy_of(network.generator), of_g)
    alone = make_objective({"name": "adg", "classification_weight": 1, "smoothing": 0.2}).local({}, linear_model, site)
    train_steps(linear_model, alone, [batches, batches])
    assert same_bits(copy_of(network.extractor), copy_of(linear_model.extractor))


def test_only_without_adversary_and_smoothing_training_is_fedavgs_of_the_plain_network_to_the_bit(
    linear_model: ExtractorClassifier, train: Train
) -> None:
    batches = make_batches(linear_model)
    states = []
    for spec in ({"name": "erm"}, {"classification_weight": 1, "smoothing": 0}, {"classification_weight": 1}):
        objective = make_objective({"name": "adg", **spec})
        own = objective.adapt(copy.deepcopy(linear_model), (3, 16, 16), 1)
        states.append(train(own, objective.local({}, own, SITE), batches))
    assert same_bits(states[0], states[1])
    assert not same_bits(states[0], states[2])


def test_the_seed_alone_decides_the_generator_and_site_and_seed_the_discriminator(
    linear_model: ExtractorClassifier,
) -> None:
    first, again, other = (copy_of(adapted(linear_model, seed)) for seed in (5, 5, 6))
    assert same_bits(first, again)
    assert {name.partition(".")[0] for name in first if not torch.equal(first[name], other[name])} == {"generator"}
    network = adapted(linear_model)
    d = [
        local_of(network, SiteRound(site, 0, seed)).memory(DONE)
        for site, seed in (("a", 1), ("a", 1), ("b", 1), ("a", 2))
    ]
    assert same_bits(d[0], d[1])
    assert not same_bits(d[0], d[2])
    assert not same_bits(d[0], d[3])


# --- what stays, and what travels ---


def test_a_later_round_goes_on_from_the_discriminator_that_the_site_kept(network: GeneratingClassifier) -> None:
    local = local_of(network)
    train_steps(network, local, [make_batches(network)])
    kept = local.memory(DONE)
    later = local_of(network, SiteRound("photo", 9, seed=7, memory=kept))
    assert same_bits(later.memory(DONE), kept)
    assert not same_bits(local_of(network, SiteRound("photo", 9, seed=7)).memory(DONE), kept)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e16])
def test_a_round_that_lost_its_way_keeps_nothing(network: GeneratingClassifier, value: float) -> None:
    local = local_of(network)
    with torch.no_grad():
        local.discriminator.projection.weight[0, 0] = value
    assert local.memory(DONE) == {}


def more(kept: State) -> State:
    return {**kept, "more": torch.zeros(1)}


def shorter(kept: State) -> State:
    return {**kept, "projection.weight": kept["projection.weight"][:-1]}


@pytest.mark.parametrize(("damage", "reason"), [(more, "sent 'more'"), (shorter, r"has shape \[63, 128\]")])
def test_memory_that_does_not_fit_is_refused_by_name(
    network: GeneratingClassifier, damage: Callable[[State], State], reason: str
) -> None:
    kept = damage(local_of(network).memory(DONE))
    with pytest.raises(SettingsError, match=rf"^memory of site photo: .*{reason}.*\.$"):
        local_of(network, SiteRound("photo", memory=kept))


def test_at_a_site_the_generator_is_in_the_update_and_the_discriminator_is_not(data_root: Path) -> None:
    protocol = Protocol(
        model="convnet", target="sketch", image_size=16, local_epochs=1, rounds=1, objective={"name": "adg"}
    )
    site = SiteSession("photo", SiteConfig(device="cpu", data_root=data_root), protocol)
    state = dict(build_network(protocol, len(site.data.classes)).state_dict())
    result = site.train(state, 0, lambda: False, lambda epoch, loss: None)
    assert result.update.keys() == state.keys()
    assert bool(result.update["generator.layers.0.weight"].any())
    assert set(result.kept.memory) == set(local_of(build_network(protocol, 7)).discriminator.state_dict())
    assert not result.kept.memory.keys() & result.update.keys()
    assert result.tensors == {}


# --- settings ---


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("classification_weight", 1.5),
        ("smoothing", -0.1),
        ("warmup", math.nan),
        ("adversary_rate", 0),
        ("generator_target", 2),
        ("generator_target", 0.5),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"^{setting} is .*, expected .*\.$"):
        make_objective({"name": "adg", setting: value})


def test_a_network_that_was_not_adapted_is_refused(linear_model: ExtractorClassifier) -> None:
    with pytest.raises(SettingsError, match=r"^objective 'adg' got a network without a generator, .*\.$"):
        make_objective("adg").local({}, linear_model, SITE)
