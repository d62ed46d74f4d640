# SPDX-License-Identifier: Apache-2.0
"""The larger part of a model, if no step changes it, is sent to each site once; the run has the bits of one without."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from fdg_plugins.controllers.rounds import Rounds
from fdg_plugins.controllers.sending import ModelSender
from fdg_plugins.messages import HEADER_REASON, META_REQUEST, TASK_CENSUS, TASK_EVALUATE, TASK_TRAIN
from fdg_plugins.models.batch_norm import NormLayer
from fdg_plugins.state.site_memory import FIXED_FILE, write_fixed
from fdg_plugins.storage import read_json
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.global_model import GlobalModel, count_bytes
from tests.controllers.test_batch_norm_rules import SOURCES, RuleJob
from tests.controllers.test_federation import Meddle

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


def test_the_fixed_part_is_sent_to_each_site_once_and_the_run_has_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Sent(tmp_path / "once").finished()
    assert all(job.names[site] == [job.whole, HEAD, HEAD, HEAD] for site in SITES)
    assert [one.bytes_down for one in job.record.rounds] == job.bytes[:3], "what the record counts is what was sent"
    assert job.bytes[0] == 4 * count_bytes(job.model)
    assert job.bytes[1] == 4 * count_bytes({name: job.model[name] for name in HEAD}) < job.bytes[0] / 10

    monkeypatch.setattr(ModelSender, "note", lambda sender, sites, failures: None)  # nobody is known to hold it
    whole = Sent(tmp_path / "whole").finished()
    assert all(whole.names[site] == [whole.whole] * 4 for site in SITES)
    assert same_bits(job.model, whole.model)
    assert job.record.evaluations == whole.record.evaluations


def test_it_stays_at_the_site_in_new_processes_for_every_task(tmp_path: Path) -> None:
    job = Sent(tmp_path)
    job.new_processes = True
    job.finished()
    assert job.names["photo"] == [job.whole, HEAD, HEAD, HEAD]
    assert all(one.failures == {} for one in job.record.rounds)


@pytest.mark.parametrize(
    "settings",
    [{"trainable": "all"}, {"trainable": "all", "travels": "body"}, {"trainable": "all", "travels": "extractor"}],
    ids=["everything travels", "a frozen head", "heads of their own"],
)
def test_a_model_of_which_the_larger_part_travels_is_sent_whole(tmp_path: Path, settings: dict[str, Any]) -> None:
    job = Sent(tmp_path, rounds=1, **settings).finished()
    assert all(job.names[site] == [job.whole] * 2 for site in SITES)
    assert not any(job.kept_files(site) for site in SITES)


def lost(job: Sent) -> None:
    for file in job.kept_files("photo"):
        file.unlink()


def damaged(job: Sent) -> None:
    for file in job.kept_files("photo"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)


def of_another_run(job: Sent) -> None:
    (file,) = job.kept_files("photo")
    write_fixed(file.parent, "0" * 64, {"extractor.weight": torch.zeros(1)})


@pytest.mark.parametrize("harm", [lost, damaged, of_another_run])
def test_a_site_that_no_longer_has_it_is_out_for_one_task_and_then_gets_it_again(
    tmp_path: Path, harm: Callable[[Sent], None]
) -> None:
    job = Sent(tmp_path, min_sites=2)

    def meddle(site: str, task: str, count: int) -> None:
        if (site, task, count) == ("photo", TASK_TRAIN, 2):
            harm(job)

    job.meddle = meddle
    job.finished()
    assert job.names["photo"] == [job.whole, HEAD, job.whole, HEAD]
    assert job.names["cartoon"] == [job.whole, HEAD, HEAD, HEAD]
    first, second, third = (one.failures for one in job.record.rounds)
    assert (first, third) == ({}, {})
    assert second["photo"].startswith(
        "it does not hold the model's fixed part, which the server sends again with the next task"
    )


def failing(site: str, task: str, round_number: int) -> Meddle:
    def meddle(who: str, what: str, count: int) -> Shareable | None:
        failed = (who, what, count) == (site, task, round_number)
        return make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: "out of memory."}) if failed else None

    return meddle


@pytest.mark.parametrize(("site", "task"), [("photo", TASK_TRAIN), ("sketch", TASK_EVALUATE)])
def test_a_site_that_gave_no_answer_gets_the_whole_model_next(tmp_path: Path, site: str, task: str) -> None:
    job = Sent(tmp_path, min_sites=2, rounds=2)
    job.meddle = failing(site, task, 1)
    job.finished()
    assert job.names[site] == [job.whole, job.whole, HEAD]


def test_a_request_that_names_what_was_not_sent_is_refused_at_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_of = Rounds._requests

    def lying(rounds: Rounds, *arguments: Any, **options: Any) -> Any:
        for request in (requests := task_of(rounds, *arguments, **options)):
            request.data.meta[META_REQUEST]["fixed"]["names"].append("extractor.nothing")
        return requests

    monkeypatch.setattr(Rounds, "_requests", lying)
    job = Sent(tmp_path, rounds=1)
    job.run()
    record = read_json(tmp_path / "results.json")
    assert record["rounds"][0]["failures"]["photo"].endswith(
        "the server sent no 'extractor.nothing', which it says is in the model."
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
