# SPDX-License-Identifier: Apache-2.0
"""A site's work under one protocol, on a small data set: what it counts, trains, judges and refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.core.privacy import privatize
from fdg_plugins.data import PACS, DomainData
from fdg_plugins.data.augmentation import normalised
from fdg_plugins.data.image_files import ImageFiles
from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import Evaluation, TrainReport
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.models.batch_norm import batch_norm_layers
from fdg_plugins.objectives import build_network
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training import statistics
from fdg_plugins.training.loop import DevicePolicy
from fdg_plugins.training.results import TrainResult, make_update
from fdg_plugins.training.session import SiteSession

SETTINGS: dict[str, Any] = {
    "model": "convnet",
    "target": "sketch",
    "image_size": 16,
    "local_epochs": 2,
    "batch_size": 8,
    "learning_rate": 0.02,
    "rounds": 10,
}
# 4 images of each of 7 classes; one of each class is for validation.
TRAIN, VALIDATION, TEST = 21, 7, 28
State = dict[str, torch.Tensor]


def session(root: Path, site: str = "photo", config: SiteConfig | None = None, **settings: Any) -> SiteSession:
    own = (config or SiteConfig(device="cpu")).model_copy(update={"data_root": root})
    return SiteSession(site, own, Protocol(**{**SETTINGS, **settings}))


def initial_state(**settings: Any) -> State:
    protocol = Protocol(**{**SETTINGS, **settings})
    return build_model(protocol.model, len(PACS.classes), seed=protocol.seed).state_dict()


def train(
    site: SiteSession, state: State, round_number: int = 0, on_epoch: Callable[[int, float], None] | None = None
) -> tuple[State, TrainReport]:
    result = site.train(state, round_number, lambda: False, on_epoch or (lambda epoch, loss: None))
    assert result.tensors == {}
    return result.update, result.report


def judge(site: SiteSession, state: State, split: Literal["validation", "test"]) -> Evaluation:
    return site.evaluate(site.load(state), split, lambda: False)


# --- training ---------------------------------------------------------------------------------------


def test_the_update_is_local_minus_received_exactly(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[ExtractorClassifier] = []
    place = DevicePolicy.place

    def place_noted(self: DevicePolicy, model: ExtractorClassifier) -> ExtractorClassifier:
        placed.append(place(self, model))
        return placed[-1]

    monkeypatch.setattr(DevicePolicy, "place", place_noted)
    received = initial_state()
    kept = {name: value.clone() for name, value in received.items()}
    update, _ = train(session(data_root), received)
    local = placed[0].state_dict()
    assert update.keys() == received.keys()
    assert all(torch.equal(update[name], local[name] - received[name]) for name in received)
    assert all(torch.equal(received[name], value) for name, value in kept.items()), "the model received was changed"
    assert any(bool(value.any()) for value in update.values())
    assert all(value.is_contiguous() and type(value) is torch.Tensor for value in update.values())


def test_a_layer_with_two_names_began_with_the_last_of_the_values_received() -> None:
    layer = torch.nn.Linear(3, 3, dtype=torch.float64)
    network = torch.nn.Sequential(layer, torch.nn.ReLU(), layer, torch.nn.Linear(3, 2, dtype=torch.float64))
    begun = {name: value.clone() for name, value in network.state_dict().items()}
    noise = privatize(begun, clip_norm=1.0, noise_multiplier=1.0)
    received = {name: value + noise[name] for name, value in begun.items()}
    network.load_state_dict(received)
    with torch.no_grad():
        for number, parameter in enumerate(network.parameters()):
            parameter.add_(number + 1)
    update = make_update(network.state_dict(), received)
    assert update.keys() == received.keys()
    moved = {"0.weight": 1.0, "0.bias": 2.0, "2.weight": 1.0, "2.bias": 2.0, "3.weight": 3.0, "3.bias": 4.0}
    for name, value in update.items():
        torch.testing.assert_close(value, torch.full_like(value, moved[name]))


def test_the_report_says_what_the_model_was_worth_before_and_after(data_root: Path) -> None:
    site, received = session(data_root, learning_rate=0.05, local_epochs=6), initial_state()
    heard: list[tuple[int, float]] = []
    update, report = train(site, received, 0, lambda epoch, loss: heard.append((epoch, loss)))
    local = {name: value + update[name] for name, value in received.items()}
    assert report.domain == "photo"
    assert report.received == judge(site, received, "validation")
    after = judge(site, local, "validation")
    assert report.local is not None
    assert report.epoch_losses is not None
    assert (report.local.value("accuracy"), report.local.count) == (after.value("accuracy"), VALIDATION)
    assert report.local.loss == pytest.approx(after.loss, abs=1e-4)
    assert heard == list(enumerate(report.epoch_losses))
    assert len(heard) == 6
    assert report.epoch_losses[-1] < report.epoch_losses[0]


def test_batches_of_one_image_are_refused_where_batch_norm_would_see_one_position(data_root: Path) -> None:
    # A ResNet at 16 pixels ends in maps of one position, the small network in maps of four.
    def train_singly(**settings: Any) -> dict[str, torch.Tensor]:
        site = session(data_root, batch_size=1, local_epochs=1, max_samples_per_domain=14, **settings)
        state = build_network(site.protocol, len(PACS.classes)).state_dict()
        return site.train(state, 0, lambda: False, lambda epoch, loss: None).update

    for objective in ("erm", "peravg"):  # the second fine-tunes a copy before it trains
        with pytest.raises(
            SettingsError, match=r"^batches have one image \(of 7 for training, with batch_size 1\), .*\.$"
        ):
            train_singly(model="resnet18", objective={"name": objective})
    for settings in (
        {"model": "resnet18", "normalization": "group"},
        {"model": "resnet18", "batch_norm": "frozen"},
        {},
    ):
        assert all(bool(value.isfinite().all()) for value in train_singly(**settings).values())


# --- splits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("split", "count"), [("validation", VALIDATION), ("test", TEST)])
def test_each_split_is_judged_on_its_own_images_without_augmentation(
    data_root: Path, split: Literal["validation", "test"], count: int
) -> None:
    site, state = session(data_root), initial_state()
    data: DomainData = site.data
    assert isinstance(data.images, ImageFiles)
    images = data.images.evaluation(getattr(data, split), 16)
    pixels = normalised(torch.stack([images[place][0] for place in range(len(images))]))
    labels = torch.tensor([sample.label for sample in getattr(data, split)])
    model = site.load(state).eval()
    with torch.no_grad():
        logits = model(pixels)
    evaluation = judge(site, state, split)
    assert (evaluation.split, evaluation.count) == (split, count)
    assert evaluation.loss == pytest.approx(cross_entropy(logits, labels).item(), abs=1e-5)
    assert evaluation.value("accuracy") == pytest.approx((logits.argmax(dim=1) == labels).double().mean().item())


# --- the model received -----------------------------------------------------------------------------


def test_a_parameter_of_another_shape_is_refused_by_name(data_root: Path) -> None:
    state = initial_state()
    state["classifier.weight"] = torch.zeros(8, 128)
    with pytest.raises(
        SettingsError, match=r"'classifier\.weight' .* has shape \(8, 128\), but 'convnet' here has \(7, "
    ):
        session(data_root).load(state)


# --- methods ----------------------------------------------------------------------------------------

DIGITS: dict[str, Any] = {
    "dataset": "rotateddigits",
    "target": "angle_0",
    "model": "cnn",
    "image_size": 16,
}


def digits(**settings: Any) -> SiteSession:
    protocol = Protocol(**{**SETTINGS, **DIGITS, "local_epochs": 1, "max_samples_per_domain": 60, **settings})
    return SiteSession("angle_30", SiteConfig(device="cpu"), protocol)


def digits_state() -> State:
    return build_model("cnn", 10, seed=0, channels=1, image_size=16).state_dict()


def go(site: SiteSession, received: State | None = None) -> TrainResult:
    return site.train(digits_state(), 0, lambda: False, lambda epoch, loss: None, received)


# --- compiling --------------------------------------------------------------------------------------


def compiling(**settings: Any) -> SiteSession:
    protocol = Protocol(**{**SETTINGS, **DIGITS, "local_epochs": 1, "max_samples_per_domain": 60, **settings})
    return SiteSession("angle_30", SiteConfig(device="cpu", compile=True), protocol)


def test_a_site_that_compiles_trains_by_it_and_sends_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    monkeypatch.setattr("fdg_plugins.training.session.BACKEND", backend)
    plain = go(digits()).update
    assert graphs == []
    update = go(compiling()).update
    assert graphs
    assert update.keys() == plain.keys()
    assert all(torch.equal(update[name], value) for name, value in plain.items())


@pytest.mark.parametrize("objective", ["babu", "peravg"])
def test_a_fine_tuned_model_is_judged_with_statistics_measured_anew(
    data_root: Path, monkeypatch: pytest.MonkeyPatch, objective: str
) -> None:
    judged: list[tuple[ExtractorClassifier, State]] = []

    def keep(self: SiteSession, model: ExtractorClassifier, split: str, should_stop: Any) -> Any:
        judged.append((model, {name: value.clone() for name, value in model.state_dict().items()}))
        return evaluate(self, model, split, should_stop)

    evaluate: Any = SiteSession.evaluate
    monkeypatch.setattr(SiteSession, "evaluate", keep)
    site = session(data_root, objective=objective, batch_norm="reestimate")
    site.evaluate_own(initial_state(), 0, lambda: False)
    (model, state) = judged[-1]
    images = site._training_images(lambda: False, shuffled=True)
    statistics.reestimate(model, batch_norm_layers(model), images, site.policy)
    names = [name for name in state if "running" in name]
    assert names
    assert all(torch.allclose(state[name], model.state_dict()[name], rtol=1e-5, atol=1e-6) for name in names)
