# SPDX-License-Identifier: Apache-2.0
"""A run whose server dies goes on in another job after its last complete round, as if nothing had happened."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from fdg_plugins.messages import HEADER_REASON, TASK_CENSUS, TASK_EVALUATE, TASK_TRAIN
from fdg_plugins.record.checkpoint import has_checkpoint
from fdg_plugins.record.run_files import LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE, STATE_FILE, TENSORS_FILE
from fdg_plugins.state.folders import FOLDER
from fdg_plugins.storage import load_tensors, read_json
from fdg_plugins.testing.inputs import same_bits
from tests.controllers.jobs import MethodJob
from tests.finished_runs import same_models

pytestmark = pytest.mark.usefixtures("wire")

COMPOSED: dict[str, Any] = {
    "objective": {"name": "dim", "strength": 0.1},
    "aggregator": {"name": "fedomg", "weighting": {"name": "ga"}},
    "settings": {"rounds": 4, "sites_per_round": 4, "keep_momentum": True},
}


class ServerKilled(BaseException):
    """The server's process is gone: nothing after this line of it runs."""


def dying(task: str, count: int) -> Callable[[str, str, int], None]:
    """Return a meddler at whose ``count``-th asking of one site the server dies."""
    asked = 0

    def meddle(site: str, what: str, number: int) -> None:
        nonlocal asked
        asked += what == task
        if what == task and asked == count:
            raise ServerKilled

    return meddle


def die(*_: object) -> None:
    raise ServerKilled


def killed(folder: Path, task: str, count: int, **arguments: Any) -> None:
    job = MethodJob(folder, meddle=dying(task, count), **{**COMPOSED, **arguments})
    with pytest.raises(ServerKilled):
        job.run()


def resumed(folder: Path, **arguments: Any) -> MethodJob:
    return MethodJob(folder, resume="job", **{**COMPOSED, **arguments})


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> MethodJob:
    """The run that nothing happened to; like the others in this process, with its number of threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FDG_ISOLATE", "no")
        return MethodJob(tmp_path_factory.mktemp("unbroken"), **COMPOSED).finished()


# Four sites train in each round: the server dies in the middle of the last one's training, and while the last model is
# judged.
@pytest.mark.parametrize(
    ("task", "count", "complete"), [(TASK_TRAIN, 16, 3), pytest.param(TASK_EVALUATE, 6, 4, marks=pytest.mark.slow)]
)
def test_resume_gives_the_same_bits(tmp_path: Path, unbroken: MethodJob, task: str, count: int, complete: int) -> None:
    killed(tmp_path, task, count)
    job = resumed(tmp_path).finished()
    assert same_models(job.folder, unbroken.folder, LAST_FILE, SELECTED_FILE, TENSORS_FILE)
    state, tensors = read_json(job.folder / STATE_FILE), load_tensors(job.folder / TENSORS_FILE)
    assert (state["after_round"], state["exchange"]["tensors"]) == (4, sorted(tensors))
    assert job.record.resumed_after == [complete]
    assert job.record.evaluations == unbroken.record.evaluations
    for mine, theirs in zip(job.record.rounds, unbroken.record.rounds, strict=True):
        assert len(mine.drawn) == 4
        assert (mine.round, mine.drawn, mine.aggregation) == (theirs.round, theirs.drawn, theirs.aggregation)


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "weighting"), [("rod", "samples"), ("pac", "samples"), ("as", "as")])
def test_resume_keeps_the_sites_own_models(tmp_path: Path, objective: str, weighting: str) -> None:
    said: dict[str, Any] = {
        "objective": objective,
        "aggregator": {"name": "fedavg", "weighting": weighting},
        "settings": {"momentum": 0.0, "rounds": 4, "sites_per_round": 2, "validate_all": True},
    }
    killed(tmp_path / "broken", TASK_TRAIN, 6, **said)  # in the third round: a site has trained and another has not
    found = resumed(tmp_path / "broken", **said).finished()
    whole = MethodJob(tmp_path / "unbroken", **said).finished()
    assert found.record.resumed_after == [2]
    assert same_bits(found.model, whole.model)
    assert found.record.evaluations == whole.record.evaluations


def test_resume_of_a_finished_run_hands_out_its_results(tmp_path: Path, unbroken: MethodJob) -> None:
    kept = {"settings": {**COMPOSED["settings"], "keep_local_models": True}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fdg_plugins.controllers.federation.FederationController._remove_state", die)
        job = MethodJob(tmp_path, **{**COMPOSED, **kept})
        with pytest.raises(ServerKilled):
            job.run()
    of_sites = {path.name: path.read_bytes() for path in (tmp_path / LOCAL_FOLDER).iterdir()}
    assert len(of_sites) == 4
    for path in (LOCAL_FOLDER, RESULTS_FILE, LAST_FILE, SELECTED_FILE):  # another job has another folder
        shutil.rmtree(tmp_path / path) if path == LOCAL_FOLDER else (tmp_path / path).unlink()
    job = resumed(tmp_path, **kept).finished()
    assert {path.name: path.read_bytes() for path in (tmp_path / LOCAL_FOLDER).iterdir()} == of_sites
    assert same_bits(job.model, unbroken.model)
    assert {task for task, _ in job.asked} == {TASK_CENSUS}
    assert job.record.choices == unbroken.record.choices
    assert not has_checkpoint(tmp_path / FOLDER / "job")


def test_a_run_that_leads_nowhere_does_not_finish_by_being_resumed(tmp_path: Path) -> None:
    def away(site: str, task: str, count: int) -> Shareable | None:
        return make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: "away."}) if task == TASK_TRAIN else None

    for resume in (None, "job", "job"):
        job = MethodJob(tmp_path, resume=resume, settings={"rounds": 3}, meddle=away)
        job.run()
        assert [text.split(";")[0] for text in job.panics] == ["3 rounds in a row left the model as it was"]
        assert (job.record.status, len(job.record.rounds)) == ("stopped", 3)
    mended = MethodJob(tmp_path, resume="job", settings={"rounds": 3}).finished()
    assert [one.is_idle for one in mended.record.rounds] == [True, True, False]


OWN_HEADS: dict[str, Any] = {
    **{"objective": "erm", "aggregator": "fedavg"},
    "settings": {"travels": "extractor", "rounds": 2},
}


def test_a_run_whose_server_dies_in_the_last_evaluation_is_judged_with_what_the_sites_kept(tmp_path: Path) -> None:
    whole = MethodJob(tmp_path / "whole", **OWN_HEADS).finished()
    killed(tmp_path / "broken", TASK_EVALUATE, 2 + 4, **OWN_HEADS)  # one site judges in each round, all in the end
    assert len(sorted((tmp_path / "broken").rglob("fdg_state/job"))) == 7
    job = resumed(tmp_path / "broken", **OWN_HEADS).finished()
    assert job.record.resumed_after == [2]
    assert job.record.evaluations == whole.record.evaluations


def test_a_run_does_not_go_on_without_what_sites_kept(tmp_path: Path) -> None:
    killed(tmp_path, TASK_EVALUATE, 2, **OWN_HEADS)
    shutil.rmtree(tmp_path / "sites" / "angle_15" / "fdg_state")
    job = resumed(tmp_path, **OWN_HEADS)
    job.run()
    assert job.panics == ["run job cannot go on: its state of site angle_15 was kept, but is now lost."]
