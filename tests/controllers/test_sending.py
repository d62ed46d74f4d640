# SPDX-License-Identifier: Apache-2.0
"""The larger part of a model, if no step changes it, is sent to each site once; the run has the bits of one without."""

from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import from_shareable
from nvflare.apis.shareable import Shareable

from fdg_plugins.controllers.messenger import ModelSender
from fdg_plugins.messages import TASK_CENSUS, TASK_TRAIN
from fdg_plugins.models.batch_norm import NormLayer
from fdg_plugins.state.site_memory import FIXED_FILE
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.global_model import GlobalModel, count_bytes
from tests.controllers.test_batch_norm_rules import SOURCES, RuleJob

pytestmark = pytest.mark.usefixtures("wire", "images_at_sites")

HEAD = {"classifier.weight", "classifier.bias"}
SITES = (*SOURCES, "sketch")


class Sent(RuleJob):
    """A job that keeps the names of the parameters in each task, by site, and counts the bytes by round."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, **{"trainable": "head", "rounds": 3, **settings})
        self.names: dict[str, list[set[str]]] = {site: [] for site in SITES}
        self.bytes = [0] * 4

    def _answer(self, site: str, task: str, request: Shareable) -> Shareable | None:
        if task != TASK_CENSUS:
            model = from_shareable(request).data
            self.names[site].append(set(model))
            self.bytes[len(self.names[site]) - 1] += count_bytes(model)
        return super()._answer(site, task, request)

    def kept_files(self, site: str) -> list[Path]:
        return sorted((self.folder / "sites" / site).rglob(FIXED_FILE))

    @property
    def whole(self) -> set[str]:
        return set(self.model)


def test_fixed_part_is_sent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Sent(tmp_path / "once", rounds=2).finished()
    assert all(job.names[site] == [job.whole, HEAD, HEAD] for site in SITES)
    assert [one.bytes_down for one in job.record.rounds] == job.bytes[:2], "what the record counts is what was sent"
    assert job.bytes[0] == 4 * count_bytes(job.model)
    assert job.bytes[1] == 4 * count_bytes({name: job.model[name] for name in HEAD}) < job.bytes[0] / 10

    monkeypatch.setattr(ModelSender, "note", lambda sender, sites, failures: None)  # nobody is known to hold it
    whole = Sent(tmp_path / "whole", rounds=2).finished()
    assert all(whole.names[site] == [whole.whole] * 3 for site in SITES)
    assert same_bits(job.model, whole.model)
    assert job.record.evaluations == whole.record.evaluations


def damaged(job: Sent) -> None:
    (file,) = job.kept_files("photo")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def test_a_site_that_no_longer_has_it_is_out_for_one_task_and_then_gets_it_again(tmp_path: Path) -> None:
    job = Sent(tmp_path, min_sites=2)

    def meddle(site: str, task: str, count: int) -> None:
        if (site, task, count) == ("photo", TASK_TRAIN, 2):
            damaged(job)

    job.meddle = meddle
    job.finished()
    assert job.names["photo"] == [job.whole, HEAD, job.whole, HEAD]
    assert job.names["cartoon"] == [job.whole, HEAD, HEAD, HEAD]
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
