# SPDX-License-Identifier: Apache-2.0
"""A run whose server dies goes on in another job after its last complete round, as if nothing had happened."""

import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants
from safetensors import safe_open

from fdg_plugins.controllers import federation
from fdg_plugins.errors import DataError
from fdg_plugins.messages import HEADER_REASON, TASK_CENSUS, TASK_EVALUATE, TASK_TRAIN
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE, check_continues, has_checkpoint, read_checkpoint
from fdg_plugins.record.run_files import LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.state import folders
from fdg_plugins.state.folders import FOLDER
from fdg_plugins.storage import load_tensors
from fdg_plugins.testing.inputs import same_bits
from tests.controllers.federation_stubs import round_record, run_record
from tests.controllers.test_methods_in_rounds import MethodJob

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
    job = MethodJob(folder, **{**COMPOSED, **arguments})
    job.meddle = dying(task, count)
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


# Four sites train in each round: the server dies in the second round's training, in the middle of the last one's, and
# while the last model is judged.
@pytest.mark.parametrize(
    ("task", "count", "complete"),
    [
        pytest.param(TASK_TRAIN, 7, 1, marks=pytest.mark.slow),
        (TASK_TRAIN, 16, 3),
        pytest.param(TASK_EVALUATE, 6, 4, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_equals_an_unbroken_one_bit_for_bit(
    tmp_path: Path, unbroken: MethodJob, task: str, count: int, complete: int
) -> None:
    killed(tmp_path, task, count)
    job = resumed(tmp_path).finished()
    assert same_bits(job.model, unbroken.model)
    chosen = [load_tensors(one.folder / SELECTED_FILE) for one in (job, unbroken)]
    assert same_bits(chosen[0], chosen[1])
    assert job.record.resumed_after == [complete]
    assert job.record.evaluations == unbroken.record.evaluations
    for mine, theirs in zip(job.record.rounds, unbroken.record.rounds, strict=True):
        assert (mine.round, mine.drawn, mine.aggregation) == (theirs.round, theirs.drawn, theirs.aggregation)


def test_a_job_that_may_not_go_on_leaves_the_record_of_the_rounds_as_it_is(tmp_path: Path) -> None:
    killed(tmp_path, TASK_TRAIN, 7)
    before = (tmp_path / RESULTS_FILE).read_bytes()
    (tmp_path / "fdg_state" / "job" / "checkpoint.safetensors").write_bytes(b"damaged")
    job = resumed(tmp_path)
    job.run()
    (panic,) = job.panics
    assert panic.startswith("checkpoint of run job cannot be read: ")
    assert (tmp_path / RESULTS_FILE).read_bytes() == before


def ruining_round_2(site: str, task: str, answer: Shareable) -> None:
    """Make a site's update in round 2 so long that the model is not finite afterwards."""
    if task == TASK_TRAIN and answer.get_header(AppConstants.CURRENT_ROUND) == 1:
        update = from_shareable(answer)
        update.data = {name: torch.full_like(value, 1e19) for name, value in update.data.items()}
        update.update_shareable(answer)


def test_a_resumed_run_undoes_a_step_to_what_was_known_before_its_round(tmp_path: Path) -> None:
    """FedIIR learns from the sites before they train: from round 2 too, whose step is taken back in round 3."""
    arguments: dict[str, Any] = {
        "objective": {"name": "iir"},
        "aggregator": "fedavg",
        "settings": {"rounds": 4, "outlier_ratio": 0},
    }
    whole = MethodJob(tmp_path / "whole", forge=ruining_round_2, **arguments).finished()
    assert [finished.undone for finished in whole.record.rounds] == [False, True, False, False]
    killed(tmp_path / "part", TASK_TRAIN, 12, forge=ruining_round_2, **arguments)  # in round 3, before it is undone
    job = resumed(tmp_path / "part", forge=ruining_round_2, **arguments).finished()
    assert job.record.resumed_after == [2]
    assert [finished.undone for finished in job.record.rounds] == [False, True, False, False]
    assert same_bits(job.model, whole.model)


def test_a_run_that_broke_off_once_it_had_finished_only_hands_out_its_results(
    tmp_path: Path, unbroken: MethodJob
) -> None:
    kept = {"settings": {**COMPOSED["settings"], "keep_local_models": True}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fdg_plugins.controllers.rounds.Rounds.remove_state", die)
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


def test_the_selected_model_is_the_one_in_the_record_whatever_a_crash_left_beside_it(tmp_path: Path) -> None:
    """The server dies after it has kept the model that the unfinished round selects."""
    killed(tmp_path, TASK_TRAIN, 16)
    job = resumed(tmp_path)
    state = tmp_path / FOLDER / "job"
    (kept,) = state.glob("selected_after_*")
    (state / "selected_after_77.safetensors").write_bytes(kept.read_bytes())
    job.finished()
    with safe_open(job.folder / SELECTED_FILE, "pt") as file:
        after = file.metadata()["after_round"]
    assert {one.rule: str(one.after_round) for one in job.record.choices}["source_validation"] == after


def test_a_resumed_run_has_the_seconds_of_all_of_its_rounds(tmp_path: Path) -> None:
    killed(tmp_path, TASK_TRAIN, 16)
    kept = read_checkpoint(tmp_path / FOLDER / "job" / CHECKPOINT_FILE, "job").record
    assert kept.seconds >= sum(finished.seconds for finished in kept.rounds)


def test_a_run_can_be_resumed_more_than_once(tmp_path: Path, unbroken: MethodJob) -> None:
    killed(tmp_path, TASK_TRAIN, 6)
    killed(tmp_path, TASK_TRAIN, 6, resume="job")
    job = resumed(tmp_path).finished()
    assert job.record.resumed_after == [1, 2]
    assert same_bits(job.model, unbroken.model)


def test_a_run_that_leads_nowhere_does_not_finish_by_being_resumed(tmp_path: Path) -> None:
    def away(site: str, task: str, count: int) -> Shareable | None:
        return make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: "away."}) if task == TASK_TRAIN else None

    for resume in (None, "job", "job"):
        job = MethodJob(tmp_path, resume=resume, settings={"rounds": 3})
        job.meddle = away
        job.run()
        assert [text.split(";")[0] for text in job.panics] == ["3 rounds in a row left the model as it was"]
        assert (job.record.status, len(job.record.rounds)) == ("stopped", 3)
    mended = MethodJob(tmp_path, resume="job", settings={"rounds": 3}).finished()
    assert [one.is_idle for one in mended.record.rounds] == [True, True, False]


def test_a_run_that_finished_no_round_cannot_be_resumed_and_starts_nothing_silently(tmp_path: Path) -> None:
    killed(tmp_path, TASK_TRAIN, 2)
    job = resumed(tmp_path)
    job.run()
    assert job.panics == ["run job has no checkpoint at the server: it never finished a round, or it has ended."]
    assert TASK_TRAIN not in {task for task, _ in job.asked}


def test_a_finished_run_leaves_no_state_at_the_server_and_cannot_be_resumed(tmp_path: Path) -> None:
    first = MethodJob(tmp_path, **COMPOSED).finished()
    assert not (first.folder / "fdg_state" / "job").exists()
    job = resumed(tmp_path)
    job.run()
    assert job.panics == ["run job has no checkpoint at the server: it never finished a round, or it has ended."]


def test_a_job_that_would_go_on_with_a_run_that_still_runs_is_refused_before_any_site_is_asked(
    tmp_path: Path, unbroken: MethodJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "PATIENCE_S", 0.0)
    first, second = MethodJob(tmp_path, **COMPOSED), resumed(tmp_path)
    asked = 0

    def meddle(site: str, task: str, number: int) -> None:
        nonlocal asked
        asked += task == TASK_TRAIN
        if task == TASK_TRAIN and asked == 7:
            second.run()

    first.meddle = meddle
    first.finished()
    assert second.panics == ["run job still goes on in another job, expected one that has ended."]
    assert second.asked == []
    assert same_bits(first.model, unbroken.model)


def test_a_run_that_broke_off_leaves_its_state_to_its_owner_alone(tmp_path: Path) -> None:
    killed(tmp_path, TASK_TRAIN, 7)
    folder = tmp_path / "fdg_state" / "job"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / CHECKPOINT_FILE).stat().st_mode) == 0o600


def test_a_state_that_cannot_be_removed_does_not_undo_a_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        raise DataError(f"folder {folder} cannot be removed.")

    monkeypatch.setattr("fdg_plugins.controllers.run_files.remove_state", fail)
    assert MethodJob(tmp_path, **COMPOSED).finished().record.status == "finished"


def states(folder: Path) -> list[Path]:
    return sorted(folder.rglob("fdg_state/job"))


OWN_HEADS: dict[str, Any] = {"settings": {"travels": "extractor", "rounds": 2}}


def test_a_run_whose_server_dies_in_the_last_evaluation_is_judged_with_what_the_sites_kept(tmp_path: Path) -> None:
    whole = MethodJob(tmp_path / "whole", **OWN_HEADS).finished()
    broken = MethodJob(tmp_path / "broken", objective="erm", aggregator="fedavg", **OWN_HEADS)
    broken.meddle = dying(TASK_EVALUATE, 2 + 4)  # one site judges in each round, all six in the end
    with pytest.raises(ServerKilled):
        broken.run()
    assert len(states(tmp_path / "broken")) == 7
    job = MethodJob(tmp_path / "broken", resume="job", **OWN_HEADS).finished()
    assert job.record.resumed_after == [2]
    assert job.record.evaluations == whole.record.evaluations


@pytest.mark.parametrize("lost", [("angle_15",), ("angle_15", "angle_30", "angle_45", "angle_60", "angle_75")])
def test_a_run_does_not_go_on_without_what_sites_kept(tmp_path: Path, lost: tuple[str, ...]) -> None:
    killed(tmp_path, TASK_EVALUATE, 2, objective="erm", aggregator="fedavg", **OWN_HEADS)
    for site in lost:
        shutil.rmtree(tmp_path / "sites" / site / "fdg_state")
    job = MethodJob(tmp_path, resume="job", **OWN_HEADS)
    job.run()
    assert job.panics == [
        "run job cannot go on: site angle_15 has lost its state of the run, from which it would go on."
    ]


def test_a_site_that_takes_no_further_part_may_have_lost_its_state(tmp_path: Path) -> None:
    fresh, record = run_record(), run_record()
    record.rounds.append(round_record(1))
    record.rounds[0].local["cartoon"].keeps_state = True
    with pytest.raises(DataError, match="site cartoon has lost its state of the run"):
        check_continues(record, fresh)
    record.left_out["cartoon"] = "takes no further part: its privacy budget is spent."
    check_continues(record, fresh)


def test_in_a_simulation_the_states_of_the_sites_go_with_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federation, "in_simulator", lambda fl_ctx: True)
    monkeypatch.setattr(federation, "state_folder", lambda workspace, run: tmp_path / "sites" / "server" / FOLDER / run)
    MethodJob(tmp_path, **COMPOSED).finished()
    assert len(list((tmp_path / "sites").iterdir())) == 7
    assert states(tmp_path) == []


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_run_does_not_go_on_without_what_sites_kept_for_their_gaps(tmp_path: Path, rounds: int) -> None:
    gap: dict[str, Any] = {"aggregator": "fedga", "settings": {"rounds": 3}}
    killed(tmp_path, TASK_EVALUATE, rounds + 1, objective="erm", **gap)
    shutil.rmtree(tmp_path / "sites" / "angle_15" / "fdg_state")
    job = MethodJob(tmp_path, resume="job", **gap)
    job.run()
    assert job.panics == [
        "run job cannot go on: site angle_15 has lost its state of the run, from which it would go on."
    ]


def test_where_sites_keep_nothing_nothing_can_be_lost(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"settings": {"rounds": 2}, "filters": {"down": ([], []), "up": ([], [])}}
    killed(tmp_path, TASK_EVALUATE, 2, objective="erm", aggregator="fedavg", **plain)
    shutil.rmtree(tmp_path / "sites" / "angle_15" / "fdg_state")
    assert MethodJob(tmp_path, resume="job", **plain).finished().record.resumed_after == [1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"settings": {"rounds": 5, "sites_per_round": 4}}, "its setting rounds was 4, but is now 5."),
        ({"settings": {**COMPOSED["settings"], "seed": 1}}, "its setting seed was 0, but is now 1."),
        ({"aggregator": "fedavg"}, "its method was "),
    ],
)
def test_another_job_cannot_go_on_with_the_run(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    killed(tmp_path, TASK_TRAIN, 6)
    job = resumed(tmp_path, **change)
    job.run()
    assert len(job.panics) == 1
    assert job.panics[0].startswith("run job cannot go on: " + reason[:12])
    assert reason in job.panics[0]


def test_a_checkpoint_that_is_damaged_is_named_and_not_used(tmp_path: Path) -> None:
    killed(tmp_path, TASK_TRAIN, 6)
    path = tmp_path / "fdg_state" / "job" / CHECKPOINT_FILE
    path.write_bytes(path.read_bytes()[:1000])
    job = resumed(tmp_path)
    job.run()
    assert job.panics[0].startswith("checkpoint of run job cannot be read: ")


@pytest.mark.parametrize("run", ["../other", "", "a/b", 3])
def test_a_run_is_named_by_the_id_of_a_job_and_nothing_else(tmp_path: Path, run: Any) -> None:
    job = MethodJob(tmp_path, resume=run)
    job.run()
    assert len(job.panics) == 1
    assert re.fullmatch(r"run is .*, expected the id of a job\.", job.panics[0])
    assert TASK_TRAIN not in {task for task, _ in job.asked}
