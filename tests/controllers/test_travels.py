# SPDX-License-Identifier: Apache-2.0
"""What is personal stays at its site; what is frozen or not trained stays as it was: neither travels, in whole runs."""

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
State = dict[str, torch.Tensor]


class Watched(MethodJob):
    """A job that keeps the first model and all updates as they cross the wire, and what sites keep as their own."""

    def __init__(self, folder: Path, settings: dict[str, Any], **arguments: Any) -> None:
        super().__init__(folder, settings=settings, forge=self._watch, **arguments)
        self.first_model: State = {}
        self.updates: list[tuple[str, State]] = []
        self.own: dict[str, list[State]] = {site: [] for site in ANGLES}

    def _watch(self, site: str, task: str, answer: Shareable) -> None:
        dxo = from_shareable(answer)
        if dxo.data_kind == DataKind.WEIGHT_DIFF:
            self.updates.append((site, {name: torch.as_tensor(value).clone() for name, value in dxo.data.items()}))
            files = sorted((self.folder / "sites" / site).rglob("fdg_trained_*.safetensors"))
            self.own[site] += [dict(read_kept(path.parent, 99).personal) for path in files[:1]]

    def _answer(self, site: str, task: str, request: Shareable) -> Shareable | None:
        if task == TASK_TRAIN and not self.first_model:
            self.first_model = {name: value.clone() for name, value in from_shareable(request).data.items()}
        return super()._answer(site, task, request)


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
