# SPDX-License-Identifier: Apache-2.0
"""Which parameters travel: what is personal stays at its site, what is frozen stays as it was, in whole runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import DataKind, from_shareable
from nvflare.apis.shareable import Shareable

from fdg_plugins.messages import TASK_TRAIN
from fdg_plugins.state.site_memory import read_kept
from fdg_plugins.training.session import SiteSession
from tests.controllers.test_methods_in_rounds import ANGLES, MethodJob

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


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ("extractor", {"objective": "dim"}, "objective 'dim' needs the whole head to travel."),
    ("head", {"objective": "scaffold"}, "objective 'scaffold' needs all parameters to travel"),
    ("extractor", {"aggregator": "fedcsa"}, "aggregator FedCSAAggregator needs the whole head to travel."),
    ({"frozen": ["extractr"]}, {}, "has the pattern 'extractr', which names nothing of the network."),
    ({"frozen": ["*"]}, {}, "leaves no trainable parameter to share"),
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
