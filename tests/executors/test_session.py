# SPDX-License-Identifier: Apache-2.0
"""A site's work under one protocol, on a small data set: what it counts, trains, judges, keeps and refuses."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fdg_plugins.core.privacy import privatize
from fdg_plugins.data import PACS
from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import Evaluation
from fdg_plugins.models import NETWORKS, ExtractorClassifier, Network, build_model
from fdg_plugins.models.batch_norm import batch_norm_layers
from fdg_plugins.objectives import build_network
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.state.site_memory import Kept
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training import statistics
from fdg_plugins.training.loop import CPU_FEATURES, DevicePolicy, device_policy, suited_precision, why_slow
from fdg_plugins.training.networks import SharedNetworks, copy_of, is_copyable
from fdg_plugins.training.optimizers import BUFFER, momentum_of, restore_momentum
from fdg_plugins.training.results import TrainResult, make_update
from fdg_plugins.training.session import SiteSession

SETTINGS: dict[str, Any] = {
    **{"model": "convnet", "target": "sketch", "image_size": 16, "local_epochs": 2, "batch_size": 8},
    **{"learning_rate": 0.02, "rounds": 10},
}
# 4 images of each of 7 classes; one of each class is for validation.
TRAIN, VALIDATION, TEST = 21, 7, 28
CPU = torch.device("cpu")
State = Mapping[str, torch.Tensor]


def session(root: Path, site: str = "photo", **settings: Any) -> SiteSession:
    config = SiteConfig(device="cpu", data_root=root, domain="photo")
    return SiteSession(site, config, Protocol(**{**SETTINGS, **settings}))


def initial(site: SiteSession) -> State:
    return dict(build_network(site.protocol, len(site.data.classes)).state_dict())


def train(
    site: SiteSession,
    state: State,
    number: int = 0,
    kept: Kept | None = None,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> TrainResult:
    return site.train(state, number, on_epoch, kept=kept)


def moved(state: State, update: State) -> State:
    return {name: value + update[name] for name, value in state.items()}


def judge(site: SiteSession, state: State, split: Literal["validation", "test"]) -> Evaluation:
    return site.evaluate(site.load(state), split)


def test_a_layer_with_two_names_began_with_the_last_of_the_values_received() -> None:
    layer = nn.Linear(3, 3, dtype=torch.float64)
    network = nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(3, 2, dtype=torch.float64))
    begun = {name: value.clone() for name, value in network.state_dict().items()}
    noise = privatize(begun, clip_norm=1.0, noise_multiplier=1.0)
    received = {name: value + noise[name] for name, value in begun.items()}
    network.load_state_dict(received)
    with torch.no_grad():
        for number, parameter in enumerate(network.parameters()):
            parameter.add_(number + 1)
    update = make_update(network.state_dict(), received)
    expected = {"0.weight": 1.0, "0.bias": 2.0, "2.weight": 1.0, "2.bias": 2.0, "3.weight": 3.0, "3.bias": 4.0}
    assert update.keys() == expected.keys()
    for name, value in update.items():
        torch.testing.assert_close(value, torch.full_like(value, expected[name]))


def test_the_report_says_what_the_model_was_worth_before_and_after(data_root: Path) -> None:
    site = session(data_root, learning_rate=0.05, local_epochs=6)
    received, heard = initial(site), list[tuple[int, float]]()
    result = train(site, received, on_epoch=lambda epoch, loss: heard.append((epoch, loss)))
    report, after = result.report, judge(site, moved(received, result.update), "validation")
    assert report.domain == "photo"
    assert report.received == judge(site, received, "validation")
    assert report.local is not None
    assert report.epoch_losses is not None
    assert (report.local.value("accuracy"), report.local.count) == (after.value("accuracy"), VALIDATION)
    assert report.local.loss == pytest.approx(after.loss, abs=1e-4)
    assert heard == list(enumerate(report.epoch_losses))
    assert len(heard) == 6
    assert report.epoch_losses[-1] < report.epoch_losses[0]


def test_batches_of_one_image_are_refused(data_root: Path) -> None:
    # A ResNet at 16 pixels ends in maps of one position, the small network in maps of four.
    def train_singly(**settings: Any) -> State:
        site = session(data_root, batch_size=1, local_epochs=1, max_samples_per_domain=14, **settings)
        return train(site, initial(site)).update

    for objective in ("erm", "peravg"):  # the second fine-tunes a copy before it trains
        with pytest.raises(SettingsError) as caught:
            train_singly(model="resnet18", objective={"name": objective})
        assert "(of 7 for training, with batch_size 1)" in caught.value.public
    assert all(bool(value.isfinite().all()) for value in train_singly().values())


def test_a_parameter_of_another_shape_is_refused_by_name(data_root: Path) -> None:
    site = session(data_root)
    with pytest.raises(SettingsError) as caught:
        site.load({**initial(site), "classifier.weight": torch.zeros(8, 128)})
    assert "'classifier.weight' of the model received has shape (8, 128)" in caught.value.public


def test_a_site_whose_domain_is_held_out_trains_nothing(data_root: Path) -> None:
    site = session(data_root, target="photo")
    with pytest.raises(SettingsError):
        train(site, initial(site))


@pytest.mark.slow
def test_a_site_that_compiles_trains_by_it_and_sends_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    monkeypatch.setattr("fdg_plugins.training.session.BACKEND", backend)
    digits = {"dataset": "rotateddigits", "target": "angle_0", "model": "cnn", "max_samples_per_domain": 60}
    protocol = Protocol(**{**SETTINGS, **digits, "local_epochs": 1})
    updates = []
    for compiles in (False, True):
        site = SiteSession("angle_30", SiteConfig(device="cpu", compile=compiles), protocol)
        updates.append(train(site, initial(site)).update)
        assert bool(graphs) is compiles
    assert same_bits(*updates)


@pytest.mark.parametrize("objective", ["babu", "peravg"])
def test_fine_tuned_model_is_reestimated(data_root: Path, monkeypatch: pytest.MonkeyPatch, objective: str) -> None:
    judged: list[tuple[ExtractorClassifier, State]] = []
    evaluate: Any = SiteSession.evaluate

    def keep(self: SiteSession, model: ExtractorClassifier, split: str) -> Any:
        judged.append((model, {name: value.clone() for name, value in model.state_dict().items()}))
        return evaluate(self, model, split)

    monkeypatch.setattr(SiteSession, "evaluate", keep)
    site = session(data_root, objective=objective, batch_norm="reestimate")
    site.evaluate_own(initial(site), 0)
    (model, state) = judged[-1]
    images = site._training_images(shuffled=True)
    statistics.reestimate(model, batch_norm_layers(model), images, site.policy)
    names = [name for name in state if "running" in name]
    assert names
    assert all(torch.allclose(state[name], model.state_dict()[name], rtol=1e-5, atol=1e-6) for name in names)


DRAWS = "test_dropout"
DRAWN: list[float] = []


class Draws(nn.Module):
    """Draws a number from the global generator in every training step, as dropout does, and notes it."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            DRAWN.append(float(torch.rand(())))
        return images


def test_draws_depend_on_site_round_and_seed_alone_and_leave_the_global_generator(data_root: Path) -> None:
    def build(num_classes: int) -> nn.Module:
        return nn.Sequential(Draws(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, num_classes))

    def drawn(site: str, number: int, seed: int) -> list[float]:
        one = session(data_root, site, model=DRAWS, seed=seed)
        DRAWN.clear()
        train(one, initial(one), number)
        return list(DRAWN)

    NETWORKS.add(Network(name=DRAWS, build=build))
    first = drawn("photo", 0, 0)
    torch.rand(7)
    before = torch.get_rng_state()
    assert drawn("photo", 0, 0) == first
    assert torch.equal(torch.get_rng_state(), before)
    assert len(set(first)) == len(first) > 2
    for other in (("other", 0, 0), ("photo", 1, 0), ("photo", 0, 1)):
        assert not set(first) & set(drawn(*other))


def plainly_trained(site: SiteSession) -> State:
    """Return the parameters after two rounds of a loop whose only optimizer sees each round's learning rate."""
    model = build_model("convnet", len(PACS.classes), seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9, weight_decay=0.01)
    for number in range(2):
        optimizer.param_groups[0]["lr"] = site.protocol.learning_rate_at(number)
        for batches in site.images.epochs(site.protocol.local_epochs, number):
            model.train()
            for images, labels in batches:
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
    return {name: value.detach() for name, value in model.named_parameters()}


def test_two_rounds_of_a_site_are_those_of_a_loop_whose_optimizer_lives_on(data_root: Path) -> None:
    settings: dict[str, Any] = {
        "momentum": 0.9,
        "weight_decay": 0.01,
        "rounds": 2,
        "lr_decay_at": 0.5,
        "keep_momentum": True,
    }
    site = session(data_root, **settings)
    received, expected = initial(site), plainly_trained(site)
    first = train(site, received)
    second = moved(received, first.update)

    def distance(kept: Kept | None) -> float:
        found = moved(second, train(site, second, 1, kept).update)
        return max(float((found[name].double() - value.double()).abs().max()) for name, value in expected.items())

    assert distance(first.kept) < 1e-6
    assert distance(None) > 1e-3


def test_momentum_goes_through_its_tensors_bit_for_bit_and_one_that_diverged_is_not_kept() -> None:
    parameters = {"a": nn.Parameter(torch.ones(2, 3, 4, 4)), "b": nn.Parameter(torch.ones(2))}
    parameters["a"].data = parameters["a"].data.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(parameters.values(), lr=0.1, momentum=0.9)
    assert momentum_of(optimizer, parameters) == {}
    kept = {"a": torch.randn(2, 3, 4, 4)}
    restore_momentum(optimizer, parameters, kept)
    found = momentum_of(optimizer, parameters)
    assert torch.equal(found["a"], kept["a"])
    assert not bool(found["b"].any())
    assert optimizer.state[parameters["a"]][BUFFER].is_contiguous(memory_format=torch.channels_last)
    optimizer.state[parameters["b"]][BUFFER] = torch.tensor([1.0, torch.nan])
    assert momentum_of(optimizer, parameters) == {}


@pytest.mark.parametrize("feature", ["", *CPU_FEATURES])
def test_bfloat16_where_the_cpu_has_it(feature: str, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for known in CPU_FEATURES:
        monkeypatch.setattr(torch.cpu, f"_is_{known}_supported", lambda found=known == feature: found)
    fast = bool(feature)
    assert (why_slow(DevicePolicy(CPU, bfloat16=True)) is None) is fast
    policy = device_policy(Protocol(precision="auto"), CPU)
    assert policy == DevicePolicy(CPU, bfloat16=fast, channels_last=fast)
    assert policy.precision == suited_precision(CPU).precision == ("bfloat16" if fast else "float32")
    chosen = session(data_root, precision="auto", local_epochs=1)
    told = chosen.census().precision
    named = session(data_root, precision=told, channels_last=fast, local_epochs=1)
    assert same_bits(*(train(one, initial(one)).update for one in (chosen, named)))
    seen = named.policy.autocast()
    assert (told, seen._enabled) == (policy.precision, fast)


def test_a_small_network_has_one_thread_and_a_large_one_what_it_is_worth(data_root: Path) -> None:
    shared, small = SharedNetworks(), Protocol(**SETTINGS)
    larger = Protocol(**{**SETTINGS, "model": "resnet18", "image_size": 32, "batch_size": 16})
    for protocol, threads in ((small, {1: 1, 2: 1, 64: 1}), (larger, {1: 1, 2: 2, 64: 2})):
        assert {most: shared.threads(protocol, 7, most) for most in threads} == threads
    config = SiteConfig(device="cpu", data_root=data_root, domain="photo", threads=64)
    told = [SiteSession("photo", config, protocol).census().threads for protocol in (small, larger)]
    assert told == [1, 2]


@pytest.mark.parametrize(
    "settings", [{}, {"objective": {"name": "fedsr"}}, {"objective": {"name": "harmofl"}}, {"model": "resnet18"}]
)
def test_a_network_that_is_filled_is_what_loading_makes_of_a_new_one_and_shares_nothing(
    settings: dict[str, Any],
) -> None:
    protocol, shared = Protocol(**{**SETTINGS, **settings}), SharedNetworks()
    new, images = build_network(protocol, 7), torch.ones(4, 3, 16, 16)
    values = {name: value + 1 for name, value in new.state_dict().items()}
    new.load_state_dict(values)
    for _ in range(2):
        model = shared.filled(protocol, 7, values)
        assert same_bits(dict(model.state_dict()), values)
        assert model.training
        assert all(parameter.requires_grad for parameter in model.parameters())
        torch.manual_seed(0)
        loss = model(images).square().sum()
        loss.backward()
        torch.manual_seed(0)
        assert bool(loss == new(images).square().sum())
        # whatever a task does to its network
        model.requires_grad_(False).eval()
        model.extractor.register_forward_hook(lambda *_: pytest.fail("of another task"))
        model.hold(list(values))
        vars(model.extractor)["left"] = "over"
        for value in (*model.parameters(), *model.buffers()):
            value.data.zero_()
        new.load_state_dict(values)
    assert same_bits(dict(shared.built(protocol, 7).state_dict()), dict(build_network(protocol, 7).state_dict()))


class Remembering(torch.nn.Linear):
    """A layer that refers to its own tensors and to itself in ways of its own."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.seen = [self.weight]
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.twin = torch.nn.Linear(4, 4)
        self.twin.weight = self.weight
        self.scratch: torch.Tensor


def test_what_a_layer_refers_to_is_copied_with_it() -> None:
    network = ExtractorClassifier(Remembering(), torch.nn.Linear(4, 2))
    values = {name: torch.full_like(value, 3.0) for name, value in network.state_dict().items()}
    assert is_copyable(network)
    layer = copy_of(network, values).extractor
    assert isinstance(layer, Remembering)
    assert layer.seen[0] is layer.weight is layer.twin.weight is not network.extractor.weight
    assert bool((layer.weight == 3).all())
    layer.scratch.fill_(1)
    assert not any(buffer.any() for buffer in network.extractor.buffers())


def test_a_network_with_a_hook_is_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def hooked(protocol: Protocol, num_classes: int) -> ExtractorClassifier:
        network = build_network(protocol, num_classes)
        network.extractor.register_forward_hook(lambda *_: built.append(network))
        return network

    built: list[ExtractorClassifier] = []
    monkeypatch.setattr("fdg_plugins.training.networks.build_network", hooked)
    protocol, shared = Protocol(**SETTINGS), SharedNetworks()
    values = build_network(protocol, 7).state_dict()
    first, second = (shared.filled(protocol, 7, values) for _ in range(2))
    built.clear()
    second(torch.ones(2, 3, 16, 16))
    assert built == [second] != [first]
