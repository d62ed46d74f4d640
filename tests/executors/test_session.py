# SPDX-License-Identifier: Apache-2.0
"""A site's work under one protocol, on a small data set: what it counts, trains, judges and refuses."""

import math
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from pydantic import ValidationError
from torch.nn.functional import cross_entropy

from fdg_plugins.core.privacy import privatize
from fdg_plugins.data import PACS, DomainData
from fdg_plugins.data.image_files import ImageFiles
from fdg_plugins.data.stand_in import ensure_stand_in
from fdg_plugins.data.transforms import normalised
from fdg_plugins.errors import DataError, SettingsError, Stopped
from fdg_plugins.messages import Evaluation, TrainReport
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.models.batch_norm import batch_norm_layers
from fdg_plugins.objectives import build_network, see
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.testing.inputs import same_bits
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
STEPS_PER_EPOCH = math.ceil(TRAIN / SETTINGS["batch_size"])
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


# --- census -----------------------------------------------------------------------------------------


def test_the_census_counts_what_is_there(data_root: Path) -> None:
    reply = session(data_root).census()
    assert (reply.domain, reply.dataset, reply.stand_in, reply.classes) == ("photo", "pacs", False, PACS.classes)
    assert (reply.num_train, reply.num_validation, reply.num_test) == (TRAIN, VALIDATION, TEST)
    assert reply.class_counts == (4,) * 7
    assert (reply.split, len(reply.split_hash), reply.skipped) == ("pacs/90-10@0", 16, ())
    assert (reply.role, reply.device) == (None, "cpu")
    assert reply.versions["torch"] == version("torch")
    assert {"fdg-plugins", "nvflare"} <= reply.versions.keys()


def test_the_census_follows_the_site_and_the_protocol(data_root: Path) -> None:
    config = SiteConfig(domain="cartoon", role="source", device="cpu")
    reply = session(data_root, "hospital-1", config, max_samples_per_domain=14, seed=3).census()
    assert (reply.domain, reply.role, reply.split) == ("cartoon", "source", "pacs/90-10@3/max14")
    assert (reply.num_train, reply.num_validation, reply.num_test) == (7, 7, 14)
    assert reply.class_counts == (2,) * 7
    assert reply.split_hash != session(data_root).census().split_hash


@pytest.mark.parametrize(
    ("config", "protocol"),
    [
        ({}, {}),
        ({"damaged_images": "leave_out"}, {}),
        ({"damaged_images": "leave_out", "part": "1/2"}, {"partition": "dirichlet", "sites_per_domain": 2}),
    ],
)
def test_a_census_is_stopped_within_one_image(
    data_root: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], protocol: dict[str, Any]
) -> None:
    looked_at: list[object] = []
    site = session(data_root, "photo", SiteConfig(domain="photo", device="cpu", **config), **protocol)
    monkeypatch.setattr(type(site.data.images), "check", lambda self, sample: looked_at.append(sample))
    with pytest.raises(Stopped):
        site.census(lambda: len(looked_at) >= 3)
    assert len(looked_at) == 3


def test_the_census_looks_at_every_image(own_data_root: Path) -> None:
    broken = own_data_root / "pacs" / "photo" / "horse" / "002.png"
    broken.write_bytes(b"no image")
    site = session(own_data_root)
    with pytest.raises(DataError, match=r"1 cannot be used \(photo/horse/002\.png cannot be read") as caught:
        site.census()
    assert caught.value.public == "of the images of domain 'photo', 1 cannot be used."


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


def test_batch_counters_move_by_the_steps_taken(data_root: Path) -> None:
    update, report = train(session(data_root), initial_state())
    assert report.steps == 2 * STEPS_PER_EPOCH
    counters = {int(value) for name, value in update.items() if name.endswith("num_batches_tracked")}
    assert counters == {report.steps}


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


@pytest.mark.parametrize(("round_number", "rate"), [(0, 0.02), (7, 0.02), (8, 0.002), (9, 0.002)])
def test_the_learning_rate_is_that_of_the_round(data_root: Path, round_number: int, rate: float) -> None:
    _, report = train(session(data_root, local_epochs=1), initial_state(), round_number)
    assert report.learning_rate == pytest.approx(rate)


def test_momentum_and_weight_decay_of_the_protocol_reach_the_optimizer(data_root: Path) -> None:
    def update(**settings: Any) -> torch.Tensor:
        return train(session(data_root, local_epochs=1, **settings), initial_state())[0]["classifier.weight"]

    plain = update(momentum=0, weight_decay=0)
    assert not torch.equal(plain, update(momentum=0.9, weight_decay=0))
    assert not torch.equal(plain, update(momentum=0, weight_decay=0.1))


def test_the_same_call_gives_the_same_bits_twice_and_in_another_session(data_root: Path) -> None:
    site = session(data_root)
    first, one = train(site, initial_state(), 3)
    torch.rand(17)  # what others draw must not matter
    for again, other in (train(site, initial_state(), 3), train(session(data_root), initial_state(), 3)):
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert one.model_copy(update={"seconds": 0.0}) == other.model_copy(update={"seconds": 0.0})


@pytest.mark.parametrize("change", ["round", "site", "seed"])
def test_round_site_and_seed_each_give_another_order_of_images(data_root: Path, change: str) -> None:
    def loss(site: str = "photo", round_number: int = 0, seed: int = 0) -> float:
        config = SiteConfig(domain="photo", device="cpu")
        # The initial model is that of seed 0 throughout, so only order and augmentation can differ.
        _, report = train(session(data_root, site, config, seed=seed), initial_state(), round_number)
        assert report.epoch_losses is not None
        return report.epoch_losses[0]

    changed = {"round": loss(round_number=1), "site": loss("elsewhere"), "seed": loss(seed=1)}
    assert changed[change] != loss()


def test_each_epoch_has_an_order_and_an_augmentation_of_its_own(data_root: Path) -> None:
    # A model that stands still has the same loss on the same batches, and only on them.
    still = session(data_root, local_epochs=3, learning_rate=1e-30, momentum=0, weight_decay=0)
    _, report = train(still, initial_state())
    assert report.epoch_losses is not None
    assert len(set(report.epoch_losses)) == 3


def test_the_protocol_says_how_far_images_are_augmented(data_root: Path) -> None:
    def shown(purpose: str, **settings: Any) -> list[float]:
        site = session(data_root, batch_size=TRAIN, **settings)
        (batches,) = site.images.epochs(1, 0, purpose)
        ((images, _),) = batches
        return sorted(round(float(image.double().sum()), 3) for image in images)

    usual = shown("a")
    assert usual == shown("a", crop_scale=0.8, color_jitter=0.4)
    for settings in ({"crop_scale": 0.7}, {"color_jitter": 0.3}):
        assert shown("a", **settings) != usual
    # Without a crop, whose shape still varies, and without colours, only a tenth of the images is changed.
    whole = {"crop_scale": 1.0, "color_jitter": 0.0}
    same = set(shown("a", **whole)) & set(shown("b", **whole))
    assert len(same) > TRAIN / 2
    assert not set(usual) & set(shown("b"))


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


def test_the_held_out_domain_never_trains(data_root: Path) -> None:
    with pytest.raises(SettingsError, match="domain 'sketch' is held out in this run and never trains"):
        train(session(data_root, "sketch"), initial_state())
    with pytest.raises(SettingsError, match="domain 'sketch' is held out"):
        train(session(data_root, "site-1", SiteConfig(domain="sketch")), initial_state())


def test_losses_on_the_training_images_leave_only_where_they_or_the_gap_may(data_root: Path) -> None:
    sites = {
        allowed: session(data_root, "photo", SiteConfig(device="cpu", allowed_reports=allowed), gap_split="train")
        for allowed in ((), ("gap",), ("training_loss",))
    }
    with pytest.raises(SettingsError, match=r"'training_loss' \(allowed_reports\), which gap_split 'train' needs"):
        train(sites[()], initial_state())
    for allowed in (("gap",), ("training_loss",)):
        _, report = train(sites[allowed], initial_state())
        assert report.training_split is not None


@pytest.mark.parametrize(
    ("settings", "report", "whose"),
    [
        ({"objective": "dim"}, "class_means", "objective 'dim'"),
        ({"objective": "iir"}, "classifier_gradient", "objective 'iir'"),
        ({"objective": "pac"}, "class_prototypes", "objective 'pac'"),
        ({"objective": "as"}, "fisher_trace", "objective 'as'"),
        ({"keep_local_models": True}, "local_model", "keep_local_models"),
    ],
)
def test_a_report_that_the_site_forbids_stops_the_site_itself_whatever_the_server_checks(
    data_root: Path, settings: dict[str, Any], report: str, whose: str
) -> None:
    config = SiteConfig(device="cpu", allowed_reports=("gap",))
    message = rf"the site forbids the report '{report}' \(allowed_reports\), which {whose} needs\."
    with pytest.raises(SettingsError, match=message):
        train(session(data_root, config=config, **settings), initial_state())


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


def test_a_missing_and_an_unknown_parameter_are_refused_by_name(data_root: Path) -> None:
    state = initial_state()
    del state["classifier.bias"]
    with pytest.raises(SettingsError, match=r"'classifier\.bias' .* has shape None, but 'convnet' here has \(7,\)"):
        session(data_root).load(state)
    with pytest.raises(SettingsError, match=r"'another' .* has shape \(1,\), but 'convnet' here has None"):
        session(data_root).load({**initial_state(), "another": torch.zeros(1)})


def test_the_parameters_received_are_those_of_the_model(data_root: Path) -> None:
    state = initial_state(seed=5)
    loaded = session(data_root).load(state).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in state.items())
    assert any(not torch.equal(value, initial_state()[name]) for name, value in state.items())


def test_an_unknown_model_is_refused(data_root: Path) -> None:
    with pytest.raises(SettingsError, match="model 'vgg' is unknown"):
        session(data_root, model="vgg").load(initial_state())


# --- data root and stand-in -------------------------------------------------------------------------


def test_a_site_that_names_no_root_uses_the_stand_in_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches: list[Path | None] = []

    def ensure(cache: Path | None, dataset: str) -> Path:
        caches.append(cache)
        return ensure_stand_in(cache, dataset, images_per_class=2)

    monkeypatch.setattr("fdg_plugins.data.roots.ensure_stand_in", ensure)
    site = SiteSession("photo", SiteConfig(device="cpu"), Protocol(**SETTINGS), tmp_path)
    reply = site.census()
    assert (reply.stand_in, reply.num_test, caches) == (True, 14, [tmp_path])


def test_a_named_root_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data root .*/root is not a folder; FDG_DATA_ROOT or fdg_site\.json names it"):
        session(tmp_path / "root")


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


@pytest.mark.parametrize("objective", [{"name": "dim", "strength": 0.0}, {"name": "iir", "strength": 0.0}])
def test_a_strength_of_zero_is_fedavg_bit_for_bit_also_with_what_the_server_sends(objective: dict[str, Any]) -> None:
    site = digits(objective=objective)
    exchange = site.objective.exchange(site.load(digits_state()), 10)
    assert exchange is not None
    exchange.begin_round(digits_state())
    if site.objective.probes:
        read = exchange.read("angle_30", site.probe(digits_state(), lambda: False), None)
    else:
        first = go(site)
        read = exchange.read("angle_30", first.tensors, first.update)
    exchange.finish({"angle_30": read})
    assert exchange.broadcast()
    plain = go(digits()).update
    assert same_bits(go(site, exchange.broadcast()).update, plain)
    assert any(
        not torch.equal(value, plain[name])
        for name, value in go(digits(objective={**objective, "strength": 1.0}), exchange.broadcast()).update.items()
    )


def test_class_means_are_reported_of_the_model_after_training() -> None:
    site = digits(objective="dim")
    result = go(site)
    local = {name: value + digits_state()[name] for name, value in result.update.items()}
    model = site.load(local)
    again = site.objective.report_trained(model, see(model, site._training_images(lambda: False)), 10)
    assert result.tensors["class_counts"].sum() == len(site.data.train)
    assert torch.allclose(result.tensors["class_means"], again["class_means"], atol=1e-6)


def test_the_probe_reports_the_gradient_of_the_model_received_and_trains_nothing() -> None:
    site = digits(objective="iir")
    gradient = site.probe(digits_state(), lambda: False)
    model = site.load(digits_state()).eval()
    images, labels = (torch.cat(part) for part in zip(*site._training_images(lambda: False), strict=True))
    loss = cross_entropy(model(images), labels)
    expected = torch.autograd.grad(loss, [model.last_layer.weight])[0]
    assert torch.allclose(gradient["gradient/classifier.weight"], expected, atol=1e-6)
    assert go(site).tensors == {}
    late = go(digits(objective={"name": "iir", "probe": "previous_round"})).tensors
    assert all(torch.equal(late[name], value) for name, value in gradient.items())


def test_the_gap_can_be_measured_on_the_training_split() -> None:
    report = go(digits(gap_split="train")).report
    assert report.training_split is not None
    assert [score.split for score in report.training_split] == ["train", "train"]
    assert report.training_split[0].count == report.training_split[1].count == 50
    assert go(digits()).report.training_split is None


@pytest.mark.parametrize("objective", ["erm", "dim", {"name": "iir", "probe": "previous_round"}])
def test_a_gap_on_the_training_split_changes_no_bit_of_update_and_reports(objective: Any) -> None:
    without = go(digits(objective=objective))
    site = digits(objective=objective, gap_split="train")
    result = go(site)
    for mine, other in ((result.update, without.update), (result.tensors, without.tensors)):
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[name], value) for name, value in other.items())
    assert result.report.training_split is not None
    assert result.report.training_split[0] == site.evaluate(site.load(digits_state()), "train", lambda: False)


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


def test_the_census_says_whether_a_site_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdg_plugins.training.session.check_compiler", lambda device: None)
    assert compiling().census().compiled
    assert not digits().census().compiled


def test_a_site_without_a_compiler_says_so_at_the_census(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    torch.compiler.reset()
    with pytest.raises(SettingsError) as refused, torch._inductor.config.patch("cpp.cxx", (None, "/nowhere/g++")):
        compiling().census()
    start = "compile is true, but torch cannot compile for 'cpu' on this machine, for which it needs a C++ compiler"
    assert str(refused.value).startswith(start)
    assert "\n" not in str(refused.value)


def test_a_site_holds_its_part_of_the_domain() -> None:
    protocol = Protocol(**{**SETTINGS, **DIGITS})
    parts = [
        SiteSession(f"site-{number}", SiteConfig(domain="angle_30", part=f"{number}/3", device="cpu"), protocol)
        for number in (1, 2, 3)
    ]
    files = [sample.file for part in parts for sample in part.data.train]
    assert sorted(files) == sorted(sample.file for sample in digits(max_samples_per_domain=None).data.train)
    whole = digits(max_samples_per_domain=None).data.split_hash
    assert parts[2].census().split == f"rotateddigits/90-10@0/equal@0-{whole}/part3of3"


@pytest.mark.parametrize("part", ["0/3", "4/3", "3", "a/b", "1/0", "1/2/3"])
def test_a_part_that_is_none_is_refused(part: str) -> None:
    with pytest.raises(ValidationError):
        SiteConfig(part=part)


def test_a_source_counts_the_classes_of_what_it_trains_and_validates_on(tmp_path: Path, data_root: Path) -> None:
    """A list of the images on which a domain would be judged holds fewer; the counts bound a method's reports."""
    shutil.copytree(data_root / "pacs" / "photo", tmp_path / "pacs" / "photo")
    samples = session(tmp_path).data.test
    for name, some in (("train", samples[::2]), ("crossval", samples[1::4]), ("test", samples[3::4])):
        lines = "".join(f"{sample.file} {sample.label + 1}\n" for sample in some)
        (tmp_path / "pacs" / f"photo_{name}_kfold.txt").write_text(lines)
    source = session(tmp_path, objective="dim")
    reply = source.census()
    assert (reply.num_train, reply.num_validation, reply.num_test) == (14, 7, 7)
    assert sum(reply.class_counts) == 21
    report = source.train(initial_state(), 0, lambda: False, lambda epoch, loss: None).tensors
    assert (report["class_counts"] <= torch.tensor(reply.class_counts)).all()
    judged = session(tmp_path, target="photo").census()
    assert sum(judged.class_counts) == judged.num_test == 7


def test_sites_that_share_a_domain_equally_count_their_own_classes() -> None:
    protocol = Protocol(**{**SETTINGS, **DIGITS})
    counts = [
        SiteSession(f"site-{number}", SiteConfig(domain="angle_30", part=f"{number}/3", device="cpu"), protocol)
        .census()
        .class_counts
        for number in (1, 2, 3)
    ]
    whole = digits(max_samples_per_domain=None).census().class_counts
    assert [sum(of_class) for of_class in zip(*counts, strict=True)] == list(whole)
    assert len({*counts}) > 1


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
