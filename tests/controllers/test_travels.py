# SPDX-License-Identifier: Apache-2.0
"""Which parameters travel: what is personal stays at its site, what is frozen stays as it was, in whole runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.shareable import Shareable
from torch import nn

from fdg_plugins.messages import META_REQUEST, TASK_TRAIN
from fdg_plugins.models import NETWORKS, Network
from fdg_plugins.state.site_memory import read_kept
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.session import SiteSession
from tests.controllers.test_methods_in_rounds import ANGLES, MethodJob
from tests.controllers.test_resume import ServerKilled, dying

pytestmark = pytest.mark.usefixtures("wire")

HEAD = {"classifier.weight", "classifier.bias"}
SOURCES = [angle for angle in ANGLES if angle != "angle_0"]


class Watched(MethodJob):
    """A job that keeps what crosses the wire, and what each site keeps as its own after its trainings."""

    def __init__(self, folder: Path, travels: Any, **arguments: Any) -> None:
        settings = {"travels": travels, "rounds": 3, **arguments.pop("settings", {})}
        super().__init__(folder, settings=settings, forge=self._watch, **arguments)
        self.updates: list[tuple[str, set[str]]] = []
        self.own: dict[str, list[dict[str, torch.Tensor]]] = {site: [] for site in ANGLES}

    def _watch(self, site: str, task: str, answer: Shareable) -> None:
        dxo = from_shareable(answer)
        if dxo.data_kind == DataKind.WEIGHT_DIFF:
            self.updates.append((site, set(dxo.data)))
            kept = [dict(read_kept(path.parent, 99).personal) for path in self._files(site)]
            self.own[site] += kept[:1]

    def _files(self, site: str) -> list[Path]:
        return sorted((self.folder / "sites" / site).rglob("fdg_trained_*.safetensors"))


class FirstModel(Watched):
    """A job that also keeps the first model that was sent."""

    def __init__(self, folder: Path, travels: Any, **arguments: Any) -> None:
        super().__init__(folder, travels, **arguments)
        self.first_model: dict[str, torch.Tensor] = {}

    def _answer(self, site: str, task: str, request: Shareable) -> Shareable | None:
        if task == TASK_TRAIN and not self.first_model:
            self.first_model = {name: value.clone() for name, value in from_shareable(request).data.items()}
        return super()._answer(site, task, request)


def finished(folder: Path, travels: Any, **arguments: Any) -> FirstModel:
    job = FirstModel(folder, travels, **arguments)
    job.finished()
    return job


@pytest.mark.parametrize(
    ("travels", "shares"),
    [
        ("head", lambda name: name in HEAD),
        ("extractor", lambda name: name not in HEAD),
        ("body", lambda name: name not in HEAD),
        (
            {"frozen": ["extractor.0.weight"], "personal": ["*.bias"]},
            lambda name: name != "extractor.0.weight" and not name.endswith(".bias"),
        ),
    ],
    ids=["head", "extractor", "body", "patterns"],
)
def test_what_is_not_shared_is_in_no_update_and_the_server_leaves_it_as_it_was(
    tmp_path: Path, travels: Any, shares: Callable[[str], bool]
) -> None:
    job = finished(tmp_path, travels)
    first = job.first_model
    shared = {name for name in first if shares(name)}
    assert job.updates
    assert all(names == shared for _, names in job.updates)
    assert job.model.keys() == first.keys(), "the model's file is whole"
    for name, value in job.model.items():
        assert torch.equal(value, first[name]) == (name not in shared), name


class Masked(nn.Module):
    """A small network whose first layer has a mask."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, 4), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.register_buffer("mask", torch.arange(16) % 2 == 0)
        self.classifier = nn.Linear(16, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classifier(self.features(images) * self.mask)
        return scores


class Gate(nn.Module):
    """A layer with a mask, the same of infinities, and a table of complex numbers of absolute value one."""

    mask: torch.Tensor
    hidden: torch.Tensor
    turns: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.arange(16) % 2 == 0)
        self.register_buffer("hidden", torch.where(self.mask, 0.0, -torch.inf))
        self.register_buffer("turns", torch.polar(torch.ones(16), torch.arange(16.0)))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features * self.mask * self.turns.abs() * self.hidden.exp()


class Gated(Masked):
    """The same network, one of whose layers has two names."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.gate = Gate()
        self.same = self.gate
        self.mask = self.gate.mask

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classifier(self.same(self.gate(self.features(images))))
        return scores


def masked(num_classes: int) -> nn.Module:
    return Masked(num_classes)


def gated(num_classes: int) -> nn.Module:
    return Gated(num_classes)


@pytest.mark.parametrize(
    ("objective", "aggregator"),
    [("erm", "fedavg"), ("scaffold", "fedavg"), ("mosam", "fedavg"), ("iir", "fedavg"), ("erm", "fedomg")],
)
def test_a_boolean_buffer_stays_as_it_was(objective: str, aggregator: str, tmp_path: Path) -> None:
    NETWORKS.add(Network(name="masked", build=masked, channels=1))
    try:
        settings = {"model": "masked", "momentum": 0.0}  # as SCAFFOLD demands
        job = finished(tmp_path, "all", objective=objective, aggregator=aggregator, settings=settings)
    finally:
        NETWORKS.remove("masked")
    assert all(not finished.failures for finished in job.record.rounds)
    (mask,) = [name for name, value in job.first_model.items() if value.dtype == torch.bool]
    assert all(names == job.first_model.keys() - {mask} for _, names in job.updates)
    assert torch.equal(job.model[mask], job.first_model[mask])
    counters = [name for name in job.model if name.endswith("num_batches_tracked")]
    assert counters
    assert all(job.model[name] > job.first_model[name] for name in counters), "the mask stops no training"


def test_so_do_complex_and_infinite_buffers_and_those_with_several_names(tmp_path: Path) -> None:
    NETWORKS.add(Network(name="gated", build=gated, channels=1))
    try:
        job = finished(tmp_path, "all", settings={"model": "gated"})
    finally:
        NETWORKS.remove("gated")
    assert all(not finished.failures for finished in job.record.rounds)
    constants = [name for name in job.first_model if name.endswith(("mask", "hidden", "turns"))]
    assert len(constants) == 7
    assert all(names == job.first_model.keys() - constants for _, names in job.updates)
    assert all(torch.equal(job.model[name], job.first_model[name]) for name in constants)
    assert not torch.equal(job.model["classifier.weight"], job.first_model["classifier.weight"])


def test_every_site_keeps_a_head_of_its_own_also_over_rounds_in_which_it_is_not_drawn(tmp_path: Path) -> None:
    job = finished(tmp_path, "extractor", settings={"rounds": 5, "sites_per_round": 2, "validate_all": True})
    drawn = [finished.drawn for finished in job.record.rounds]
    pauses = [site for site in SOURCES if [site in names for names in drawn].count(True) > 1]
    assert pauses, "some site is drawn more than once"
    for site in SOURCES:
        assert len(job.own[site]) == [site in names for names in drawn].count(True)
        assert all(kept.keys() == HEAD for kept in job.own[site])
    heads = [job.own[site][-1]["classifier.weight"] for site in SOURCES if job.own[site]]
    assert not any(torch.equal(heads[0], other) for other in heads[1:])


def test_a_site_trains_and_is_judged_with_the_head_that_it_kept(tmp_path: Path) -> None:
    seen: dict[str, list[torch.Tensor]] = {}

    load = SiteSession.load

    def spy(self: SiteSession, state: Any, personal: Any = None) -> Any:
        model = load(self, state, personal)
        seen.setdefault(self.site, []).append(model.last_layer.weight.detach().clone())
        return model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SiteSession, "load", spy)
        job = finished(tmp_path, "extractor")
    first = job.first_model["classifier.weight"]
    for site in SOURCES:
        expected = [first, *(own["classifier.weight"] for own in job.own[site])]
        assert all(torch.equal(came, kept) for came, kept in zip(seen[site], expected, strict=True))
    assert all(torch.equal(weight, first) for weight in seen["angle_0"]), "the held-out site has none of its own"


@pytest.mark.slow
def test_a_run_with_processes_that_come_and_go_has_the_same_bits(tmp_path: Path) -> None:
    job = FirstModel(tmp_path / "new", "extractor")
    job.new_processes = True
    job.finished()
    other = finished(tmp_path / "old", "extractor")
    assert same_bits(job.model, other.model)
    assert job.record.evaluations == other.record.evaluations


@pytest.mark.slow
@pytest.mark.parametrize("travels", ["head", "extractor"])
def test_a_run_that_is_resumed_equals_an_unbroken_one_bit_for_bit(tmp_path: Path, travels: str) -> None:
    broken = FirstModel(tmp_path / "broken", travels)
    broken.meddle = dying(TASK_TRAIN, 8)
    with pytest.raises(ServerKilled):
        broken.run()
    resumed = finished(tmp_path / "broken", travels, resume="job")
    unbroken = finished(tmp_path / "unbroken", travels)
    assert same_bits(resumed.model, unbroken.model)
    assert resumed.record.evaluations == unbroken.record.evaluations


def test_nothing_held_back_has_the_bits_of_a_run_that_says_nothing(tmp_path: Path) -> None:
    plain = MethodJob(tmp_path / "plain", settings={"rounds": 2}).finished()
    said = finished(tmp_path / "said", "all", settings={"rounds": 2})
    assert same_bits(plain.model, said.model)
    assert not list(tmp_path.rglob("fdg_personal_*"))


@pytest.mark.parametrize(
    ("travels", "objective"), [*(("head", name) for name in ("sam", "prox", "rsc", "sr")), ("extractor", "sam")]
)
def test_local_objectives_of_which_the_server_reads_nothing_go_with_any_rule(
    tmp_path: Path, travels: str, objective: str
) -> None:
    job = FirstModel(tmp_path, travels, objective=objective, settings={"rounds": 1})
    job.finished()
    assert all(finished.aggregation is not None for finished in job.record.rounds)


@pytest.mark.parametrize("aggregator", ["fedomg", "fednova", {"name": "fedavg", "weighting": {"name": "ga"}}])
def test_server_rules_work_on_what_travels(tmp_path: Path, aggregator: Any) -> None:
    job = finished(tmp_path, "extractor", aggregator=aggregator, settings={"rounds": 2})
    assert all(finished.aggregation is not None for finished in job.record.rounds)


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ("extractor", {"objective": "dim"}, "objective 'dim' needs the whole head to travel."),
    ({"frozen": ["classifier"]}, {"objective": "iir"}, "objective 'iir' needs the whole head to travel."),
    ("head", {"objective": "scaffold"}, "objective 'scaffold' needs all parameters to travel, expected 'all'."),
    ("head", {"objective": "harmo"}, "objective 'harmo' needs all parameters to travel, expected 'all'."),
    ("extractor", {"aggregator": "fedcsa"}, "aggregator FedCSAAggregator needs the whole head to travel."),
    ("extractor", {"settings": {"keep_local_models": True}}, "which keep_local_models needs."),
    ({"frozen": ["extractr"]}, {}, "has the pattern 'extractr', which names nothing of the network."),
    ({"frozen": ["*"]}, {}, "which leaves no trainable parameter to share, expected at least one."),
    ({"frozen": ["*.bias"], "personal": ["classifier"]}, {}, "makes 'classifier.bias' both personal and frozen"),
    ("heads", {}, "travels (FDG_TRAVELS) is 'heads'"),
    ({"frozen": []}, {}, "travels (FDG_TRAVELS) is a mapping"),
    ({"frozen": [3]}, {}, "travels (FDG_TRAVELS) is a mapping"),
]


@pytest.mark.parametrize(("travels", "arguments", "reason"), REFUSED)
def test_a_rule_that_cannot_be_followed_is_refused_before_any_site_is_asked(
    tmp_path: Path, travels: Any, arguments: dict[str, Any], reason: str
) -> None:
    job = FirstModel(tmp_path, travels, **arguments)
    job.run()
    assert job.asked == []
    assert len(job.panics) == 1
    assert "travels (FDG_TRAVELS)" in job.panics[0]
    assert reason in job.panics[0]


def test_the_environment_names_a_rule_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDG_TRAVELS", '{"personal": ["classifier"]}')
    job = FirstModel(tmp_path, "all", settings={"rounds": 1})
    job.finished()
    assert all(names.isdisjoint(HEAD) for _, names in job.updates)
    assert job.record.protocol.travels == {"personal": ("classifier",)}


def test_a_request_says_the_rule_to_the_sites(tmp_path: Path) -> None:
    told: list[Any] = []

    class Listening(FirstModel):
        def _answer(self, site: str, task: str, request: Shareable) -> Shareable | None:
            if task == TASK_TRAIN:
                told.append(from_shareable(request).meta[META_REQUEST]["protocol"]["travels"])
            return super()._answer(site, task, request)

    Listening(tmp_path, {"frozen": ["classifier"]}, settings={"rounds": 1}).finished()
    assert told == [{"frozen": ["classifier"]}] * len(SOURCES)
