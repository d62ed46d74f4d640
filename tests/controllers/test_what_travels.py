# SPDX-License-Identifier: Apache-2.0
"""What travels: the global model's steps and fixed part, BatchNorm's statistics, what is personal or not trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.controllers.reception import SiteStatistics
from fdg_plugins.data import open_domain
from fdg_plugins.data.images import reported_batches
from fdg_plugins.errors import ContributionError, FDGError
from fdg_plugins.messages import TASK_EVALUATE, TASK_STATISTICS, TASK_TRAIN
from fdg_plugins.models import build_model
from fdg_plugins.models.batch_norm import NormLayer, batch_norm_layers
from fdg_plugins.record.run_files import SELECTED_FILE
from fdg_plugins.state.site_memory import FIXED_FILE, read_kept
from fdg_plugins.storage import load_tensors
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.global_model import GlobalModel, count_bytes
from fdg_plugins.training.session import SiteSession
from tests.controllers.jobs import ANGLES, PROTOCOL, Forge, Job, MethodJob, State

SOURCES = ("art_painting", "cartoon", "photo")
MEANS, BUFFERS = ".running_mean", (".running_mean", ".running_var", ".num_batches_tracked")
HEAD = {"classifier.weight", "classifier.bias"}

pytestmark = pytest.mark.usefixtures("wire", "images_at_sites")

KINDS = {"w": "trainable", "running": "float_buffer", "counter": "integer_buffer"}


def test_a_step_is_added_every_dtype_kept_and_nothing_changed_in_place() -> None:
    state = {"w": torch.tensor([[1.0, 2.0]]), "running": torch.tensor([0.5]), "counter": torch.tensor(3)}
    step = {"w": torch.tensor([[10.0, -2.0]]), "running": torch.tensor([-0.25]), "counter": torch.tensor(2)}
    moved = GlobalModel(state, KINDS)
    sent, kept = moved.state, {name: value.clone() for name, value in moved.state.items()}
    moved.apply({name: value.double().numpy() for name, value in step.items()})
    expected = {"w": [[11.0, 0.0]], "running": [0.25], "counter": 5}
    assert {name: value.tolist() for name, value in moved.state.items()} == expected
    assert {name: value.dtype for name, value in moved.state.items()} == {name: one.dtype for name, one in kept.items()}
    assert all(torch.equal(sent[name], value) for name, value in kept.items())


@pytest.mark.parametrize("value", [float("nan"), 3e38])
def test_a_step_out_of_the_finite_numbers_is_refused_by_name_and_changes_nothing(value: float) -> None:
    moved = GlobalModel({"a": torch.tensor([1.0]), "b": torch.tensor([3e38])}, {"a": "trainable", "b": "trainable"})
    before = moved.state
    with pytest.raises(FDGError):
        moved.apply({"a": torch.tensor([1.0]), "b": torch.tensor([value])})
    assert moved.state is before
    assert moved.state["a"].tolist() == [1.0]


def test_variances_that_no_site_can_have_count_as_zero_in_the_mean() -> None:
    received = torch.tensor([0.5, 2.0, 0.0])
    kinds = {"bn.running_var": "float_buffer", "w": "trainable"}
    made = GlobalModel({"bn.running_var": received, "w": torch.zeros(1)}, kinds)
    honest = [torch.tensor([-0.5, 1.0, 0.25]), torch.tensor([0.25, -1.0, 0.0])]
    updates: list[dict[str, Any]] = [
        {"bn.running_var": one, "w": torch.tensor([-9.0])} for one in (*honest, -3 * received - 1)
    ]
    made.clamp_variances(updates)
    assert all(update["bn.running_var"] is one for update, one in zip(updates, honest, strict=False)), "as they came"
    assert torch.equal(updates[-1]["bn.running_var"], -received)
    assert all(update["w"].item() == -9 for update in updates)
    made.apply({"bn.running_var": -3 * received - 1, "w": torch.zeros(1)})  # which noise may make negative
    assert made.state["bn.running_var"].tolist() == [0.0, 0.0, 0.0]


def job_of(folder: Path, forge: Forge = lambda site, task, answer: None, **settings: Any) -> Job:
    """Return a job with these settings, with FedAvg unless they have another aggregator."""
    aggregator = settings.pop("aggregator", "fedavg")
    return Job(folder, protocol={**PROTOCOL, **settings}, aggregator=aggregator, forge=forge)


def names_sent(job: Job) -> dict[str, list[set[str]]]:
    """Return the names of the parameters in each task, by site."""
    return {site: [set(model) for _, asked, model in job.requests if asked == site] for site in job.sites}


def test_fixed_part_is_sent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path / "once", trainable="head").finished()
    assert set(job.model) > HEAD
    assert list(names_sent(job).values()) == [[set(job.model), HEAD, HEAD]] * 4
    models = [model for *_, model in job.requests]
    of_rounds = [sum(map(count_bytes, models[start : start + 4])) for start in (0, 4)]
    assert [one.bytes_down for one in job.record.rounds] == of_rounds, "what the record counts is what was sent"
    assert of_rounds[0] == 4 * count_bytes(job.model)
    assert of_rounds[1] == 4 * count_bytes({name: job.model[name] for name in HEAD}) < of_rounds[0] / 10

    note = "fdg_plugins.controllers.rounds.ModelSender.note"
    monkeypatch.setattr(note, lambda sender, sites, failures: None)  # nobody is known to hold it
    whole = job_of(tmp_path / "whole", trainable="head").finished()
    assert list(names_sent(whole).values()) == [[set(job.model)] * 3] * 4
    assert same_bits(job.model, whole.model)
    assert job.record.evaluations == whole.record.evaluations


def test_a_site_that_no_longer_has_it_is_out_for_one_task_and_then_gets_it_again(tmp_path: Path) -> None:
    def meddle(site: str, task: str, count: int) -> None:
        if (site, task, count) == ("photo", TASK_TRAIN, 2):
            (file,) = (tmp_path / "sites" / site).rglob(FIXED_FILE)
            content = bytearray(file.read_bytes())
            content[-1] ^= 1
            file.write_bytes(content)

    job = job_of(tmp_path, trainable="head", rounds=3, min_sites=2)
    job.meddle = meddle
    job.finished()
    whole, names = set(job.model), names_sent(job)
    assert names["photo"] == [whole, HEAD, whole, HEAD]
    assert names["cartoon"] == [whole, HEAD, HEAD, HEAD]
    first, second, third = (one.failures for one in job.record.rounds)
    assert (first, third) == ({}, {})
    assert second["photo"].startswith(
        "it does not hold the model's fixed part, which the server sends again with the next task"
    )


def test_statistics_that_are_measured_anew_are_not_fixed() -> None:
    state = {
        "w": torch.zeros(9),
        "bn.running_mean": torch.zeros(2),
        "bn.running_var": torch.ones(2),
        "b": torch.ones(1),
    }
    kinds = {"w": "trainable", "b": "trainable", "bn.running_mean": "float_buffer", "bn.running_var": "float_buffer"}
    model = GlobalModel(state, kinds, shared=["b"], reestimated={"bn": NormLayer(2, 1)})
    assert model.fixed == ("w",)
    model.replace({"bn.running_mean": torch.ones(2)})
    model.apply({"b": torch.ones(1)})
    assert all(torch.equal(model.state[name], state[name]) for name in model.fixed)
    assert GlobalModel(state, kinds, shared=["b"]).fixed == ("w", "bn.running_mean", "bn.running_var")
    assert GlobalModel(state, kinds, shared=["w"]).fixed == ()


def differing(one: State, other: State) -> set[str]:
    return {name for name in one if not torch.equal(one[name], other[name])}


@pytest.fixture(scope="module")
def reestimated(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> Job:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("FDG_DATA_ROOT", str(data_root)), ("FDG_DEVICE", "cpu"), ("FDG_ISOLATE", "no")):
            patch.setenv(name, value)
        return job_of(tmp_path_factory.mktemp("reestimated"), batch_norm="reestimate").finished()


def test_every_model_that_is_sent_or_judged_has_statistics_measured_anew(reestimated: Job) -> None:
    job = reestimated
    asked = [site for task, site in job.asked if task == TASK_STATISTICS]
    assert len(asked) == 3 * len(SOURCES), "before each of two rounds, and before the last evaluation"
    assert "sketch" not in asked
    assert [finished.statistics for finished in job.record.rounds] == [SOURCES, SOURCES]
    for measured, trained in zip(job.sent(TASK_STATISTICS, "photo"), job.sent(TASK_TRAIN, "photo"), strict=False):
        changed = differing(measured, trained)
        assert changed
        assert all(name.endswith(BUFFERS[:2]) for name in changed)
    judged = job.sent(TASK_EVALUATE, "sketch")
    assert not differing(judged[-1], job.model), "the model that is saved is the one judged"
    chosen = job.record.choices[1].after_round
    assert not differing(judged[chosen], load_tensors(job.folder / SELECTED_FILE))


def test_statistics_of_the_first_layer_are_those_of_all_images_together(reestimated: Job, data_root: Path) -> None:
    state = reestimated.sent(TASK_TRAIN, "photo")[0]
    model = build_model("convnet", 7, seed=0)
    model.load_state_dict(state)
    first = next(iter(batch_norm_layers(model)))
    convolution = model.get_submodule("extractor.0")
    seen = []
    for domain in SOURCES:
        data = open_domain(data_root, "pacs", domain, seed=0)
        batches = reported_batches(data, image_size=16, batch_size=64, seed=0, scope=(domain,))
        seen += [convolution(images).detach().double() for images, _ in batches]
    inputs = torch.cat(seen)
    torch.testing.assert_close(state[f"{first}.running_mean"].double(), inputs.mean((0, 2, 3)), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(state[f"{first}.running_var"].double(), inputs.var((0, 2, 3)), rtol=1e-5, atol=1e-6)


NONE, ONE = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("sums", "squares", "count"),
    [(None, ONE, 12), (torch.nan * ONE, ONE, 12), (ONE, ONE, 24), (NONE, -ONE, 12), (4 * ONE, ONE, 12)],
)
def test_statistics_that_cannot_be_are_refused_by_name(sums: Any, squares: torch.Tensor, count: int) -> None:
    found = SiteStatistics({"bn": NormLayer(2, positions=4)}, {"photo": 3})
    found.take("photo", FLModel(metrics={"bn.sums": 3 * ONE, "bn.squares": ONE, "bn.count": torch.tensor([12])}))
    told = {"bn.sums": sums, "bn.squares": squares, "bn.count": torch.tensor([count])}
    with pytest.raises(ContributionError) as caught:
        found.take("photo", FLModel(metrics={name: value for name, value in told.items() if value is not None}))
    assert str(caught.value).startswith("site photo: ")


def test_statistics_that_stand_out_are_refused_and_their_bytes_count(tmp_path: Path) -> None:
    came: dict[tuple[str, str], int] = {}

    def forge(site: str, task: str, answer: Shareable) -> None:
        if (site, task) == ("photo", TASK_STATISTICS):
            from_shareable(answer).data["extractor.1.squares"].mul_(1e6)
        came.setdefault((site, task), count_bytes(from_shareable(answer).data))

    finished = job_of(tmp_path, forge, batch_norm="reestimate", rounds=1).finished().record.rounds[0]
    assert finished.statistics == ("art_painting", "cartoon")
    assert finished.sites == SOURCES
    assert finished.bytes_up == sum(came.values())
    assert list(finished.failures) == ["photo"]


def test_a_site_that_claims_negative_variances_does_not_take_those_of_the_others(tmp_path: Path) -> None:
    def forge(site: str, task: str, answer: Shareable) -> None:
        if (site, task) == ("photo", TASK_TRAIN):
            for name, value in from_shareable(answer).data.items():
                if name.endswith(".running_var"):
                    value.fill_(-3.0)  # the received variances are one, so the site's own would be minus two

    job = job_of(tmp_path, forge, batch_norm="average", rounds=1).finished()
    assert job.record.rounds[0].sites == SOURCES
    assert min(float(value.min()) for name, value in job.model.items() if name.endswith(".running_var")) > 0.1


def test_frozen_statistics_are_those_of_the_initial_model_and_in_no_update(tmp_path: Path) -> None:
    updates: list[set[str]] = []

    def watch(site: str, task: str, answer: Shareable) -> None:
        if task == TASK_TRAIN:
            updates.append(set(from_shareable(answer).data))

    job = job_of(tmp_path, watch, batch_norm="frozen").finished()
    initial = build_model("convnet", 7, seed=0).state_dict()
    frozen = {name for name in initial if name.endswith(BUFFERS)}
    assert all(torch.equal(job.model[name], initial[name]) for name in frozen)
    assert updates
    assert all(sent == initial.keys() - frozen for sent in updates)


def test_each_site_uses_statistics_of_its_own_and_the_model_has_their_mean(tmp_path: Path) -> None:
    kept: dict[str, list[State]] = {site: [] for site in SOURCES}

    def watch(site: str, task: str, answer: Shareable) -> None:
        if task == TASK_TRAIN:
            folder = next((job.folder / "sites" / site).rglob("fdg_trained_*.safetensors")).parent
            kept[site].append(dict(read_kept(folder, 99).personal))

    job = job_of(tmp_path, watch, batch_norm="local", aggregator={"name": "fedavg", "weighting": "uniform"})
    job.finished()
    last = [kept[site][-1] for site in SOURCES]
    assert last[0].keys() == {name for name in job.model if name.endswith(BUFFERS)}
    for name in (name for name in last[0] if name.endswith(MEANS)):
        assert not torch.equal(last[0][name], last[1][name])
        mean = torch.stack([own[name] for own in last]).mean(dim=0)
        torch.testing.assert_close(job.model[name], mean, rtol=1e-4, atol=1e-5)


class Watched(MethodJob):
    """A job that keeps all updates as they cross the wire, and what sites keep as their own."""

    def __init__(self, folder: Path, settings: dict[str, Any], **arguments: Any) -> None:
        super().__init__(folder, settings=settings, forge=self._watch, **arguments)
        self.updates: list[tuple[str, State]] = []
        self.own: dict[str, list[State]] = {site: [] for site in ANGLES}

    def _watch(self, site: str, task: str, answer: Shareable) -> None:
        dxo = from_shareable(answer)
        if dxo.data_kind == DataKind.WEIGHT_DIFF:
            self.updates.append((site, {name: torch.as_tensor(value).clone() for name, value in dxo.data.items()}))
            files = sorted((self.folder / "sites" / site).rglob("fdg_trained_*.safetensors"))
            self.own[site] += [dict(read_kept(path.parent, 99).personal) for path in files[:1]]

    @property
    def first_model(self) -> State:
        return next(model for task, _, model in self.requests if task == TASK_TRAIN)


ADAPTERS = {"model": "groupnorm_convnet", "trainable": "adapters", "adapter_rank": 2}


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        (
            {"travels": {"frozen": ["extractor.0.weight"], "personal": ["*.bias"]}},
            lambda name: name != "extractor.0.weight" and not name.endswith(".bias"),
        ),
        ({"trainable": "head"}, lambda name: name in HEAD),
        pytest.param(ADAPTERS, lambda name: name in HEAD or ".lora_" in name, marks=pytest.mark.slow),
    ],
    ids=["patterns", "only the head trains", "adapters"],
)
def test_unshared_stays_as_it_was(tmp_path: Path, settings: dict[str, Any], shares: Callable[[str], bool]) -> None:
    if settings.get("trainable") == "adapters":
        pytest.importorskip("peft")
    job = Watched(tmp_path, {"rounds": 1, **settings}).finished()
    shared = {name for name in job.first_model if shares(name)}
    assert job.updates
    assert all(update.keys() == shared for _, update in job.updates)
    assert job.model.keys() == job.first_model.keys(), "the model's file is whole"
    for name, value in job.model.items():
        assert torch.equal(value, job.first_model[name]) == (name not in shared), name


def test_personal_head_is_trained_and_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[torch.Tensor]] = {}
    load = SiteSession.load

    def spy(self: SiteSession, state: Any, personal: Any = None) -> Any:
        model = load(self, state, personal)
        seen.setdefault(self.site, []).append(model.last_layer.weight.detach().clone())
        return model

    monkeypatch.setattr(SiteSession, "load", spy)
    job = Watched(tmp_path, {"travels": "extractor", "rounds": 3}).finished()
    first = job.first_model["classifier.weight"]
    for site in ANGLES:
        expected = [first, *(own["classifier.weight"] for own in job.own[site])]
        if site == "angle_0":  # the held-out site has none of its own
            expected = [first] * len(seen[site])
        assert all(torch.equal(came, kept) for came, kept in zip(seen[site], expected, strict=True))


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"travels": "extractor"}, {"objective": "dim"}, "objective 'dim' needs the whole head to travel."),
    ({"travels": "head"}, {"objective": "scaffold"}, "objective 'scaffold' needs all parameters to travel"),
    ({"travels": "extractor"}, {"aggregator": "fedcsa"}, "FedCSAAggregator needs the whole head to travel."),
    ({"travels": {"frozen": ["extractr"]}}, {}, "has the pattern 'extractr', which names nothing of the network."),
    ({"travels": {"frozen": ["*"]}}, {}, "leaves no trainable parameter to share"),
    ({"travels": {"frozen": ["*.bias"], "personal": ["classifier"]}}, {}, "both personal and frozen"),
    ({"travels": "heads"}, {}, "travels (FDG_TRAVELS) is 'heads'"),
    ({"trainable": "body"}, {}, "trainable (FDG_TRAINABLE) is 'body'"),
    ({"trainable": "head", "travels": "body"}, {}, "leave no trainable parameter to share"),
    ({"trainable": "head", "travels": {"personal": ["extractor.0.bias"]}}, {}, "never trains"),
    ({"trainable": "head"}, {"objective": "as"}, "trains the extractor on its own"),
]


@pytest.mark.parametrize(("settings", "arguments", "reason"), REFUSED)
def test_wrong_rule_is_refused(
    tmp_path: Path, settings: dict[str, Any], arguments: dict[str, Any], reason: str
) -> None:
    job = Watched(tmp_path, settings, **arguments)
    job.run()
    assert job.asked == []
    (panic,) = job.panics
    assert reason in panic
