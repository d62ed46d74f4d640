# SPDX-License-Identifier: Apache-2.0
"""What travels in whole runs: BatchNorm's statistics under their rules, what is personal, frozen or not trained."""

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
from fdg_plugins.errors import ContributionError
from fdg_plugins.messages import TASK_EVALUATE, TASK_STATISTICS, TASK_TRAIN
from fdg_plugins.models import build_model
from fdg_plugins.models.batch_norm import NormLayer, batch_norm_layers
from fdg_plugins.record.run_files import SELECTED_FILE
from fdg_plugins.state.site_memory import read_kept
from fdg_plugins.storage import load_tensors
from fdg_plugins.training.global_model import count_bytes
from fdg_plugins.training.session import SiteSession
from tests.controllers.jobs import ANGLES, PROTOCOL, Forge, Job, MethodJob, State

SOURCES = ("art_painting", "cartoon", "photo")
MEANS, BUFFERS = ".running_mean", (".running_mean", ".running_var", ".num_batches_tracked")

pytestmark = pytest.mark.usefixtures("wire", "images_at_sites")


def rule_job(folder: Path, rule: str, forge: Forge = lambda site, task, answer: None, **settings: Any) -> Job:
    """Return a job under a rule, with FedAvg unless the settings have another aggregator."""
    aggregator = settings.pop("aggregator", "fedavg")
    return Job(folder, protocol={**PROTOCOL, "batch_norm": rule, **settings}, aggregator=aggregator, forge=forge)


def differing(one: State, other: State) -> set[str]:
    return {name for name in one if not torch.equal(one[name], other[name])}


@pytest.fixture(scope="module")
def reestimated(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> Job:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("FDG_DATA_ROOT", str(data_root)), ("FDG_DEVICE", "cpu"), ("FDG_ISOLATE", "no")):
            patch.setenv(name, value)
        return rule_job(tmp_path_factory.mktemp("reestimated"), "reestimate").finished()


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

    finished = rule_job(tmp_path, "reestimate", forge, rounds=1).finished().record.rounds[0]
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

    job = rule_job(tmp_path, "average", forge, rounds=1).finished()
    assert job.record.rounds[0].sites == SOURCES
    assert min(float(value.min()) for name, value in job.model.items() if name.endswith(".running_var")) > 0.1


def test_frozen_statistics_are_those_of_the_initial_model_and_in_no_update(tmp_path: Path) -> None:
    updates: list[set[str]] = []

    def watch(site: str, task: str, answer: Shareable) -> None:
        if task == TASK_TRAIN:
            updates.append(set(from_shareable(answer).data))

    job = rule_job(tmp_path, "frozen", watch).finished()
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

    job = rule_job(tmp_path, "local", watch, aggregator={"name": "fedavg", "weighting": "uniform"})
    job.finished()
    last = [kept[site][-1] for site in SOURCES]
    assert last[0].keys() == {name for name in job.model if name.endswith(BUFFERS)}
    for name in (name for name in last[0] if name.endswith(MEANS)):
        assert not torch.equal(last[0][name], last[1][name])
        mean = torch.stack([own[name] for own in last]).mean(dim=0)
        torch.testing.assert_close(job.model[name], mean, rtol=1e-4, atol=1e-5)


HEAD = {"classifier.weight", "classifier.bias"}


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
