# SPDX-License-Identifier: Apache-2.0
"""``fdg submit`` against a server that is not there: how it follows a job, when it resumes one, and when not."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from nvflare.fuel.flare_api.api_spec import AuthenticationError, InvalidJobDefinition, NoConnection, SessionClosed
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE
from typer.testing import Result

from fdg_plugins.cli import submit as submission
from fdg_plugins.cli import watch
from fdg_plugins.cli.resume import SIGNATURE, write_resuming_job
from fdg_plugins.controllers import FederationController
from fdg_plugins.controllers.messenger import Messenger
from fdg_plugins.errors import CensusError
from fdg_plugins.lab.engine.workflow import CONTROLLERS
from fdg_plugins.record.census import check_connected
from fdg_plugins.record.run_files import RESULTS_FILE
from tests.cli.session_stubs import (
    COMPLETED,
    DIED,
    JOB,
    FakeFlare,
    Left,
    Step,
    aborted_record,
    check_refusal,
    job_id,
    make_person_kit,
    record,
)
from tests.cli.session_stubs import run as run_command

RESTARTED = [Step("SUBMITTED", False), Step(), Step("RUNNING", False, 2.0)]


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A person's startup kit."""
    return make_person_kit(tmp_path / "lead")


def submit(flare: FakeFlare, monkeypatch: pytest.MonkeyPatch, kit: Path, *options: object, job: Path = JOB) -> Result:
    return run_command(flare, monkeypatch, "submit", job, "--kit", kit, *options)


def resuming(
    kit: Path, monkeypatch: pytest.MonkeyPatch, scripts: list[list[Step]], records: Sequence[Left]
) -> tuple[FakeFlare, Result]:
    """Run ``fdg submit --resume-on-failure``; ``scripts`` and ``records`` are of the jobs in their order."""
    flare = FakeFlare(
        [list(script) for script in scripts], {job_id(number): found for number, found in enumerate(records)}
    )
    return flare, submit(flare, monkeypatch, kit, "--resume-on-failure")


def test_it_submits_follows_and_says_how_the_job_ended(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = FakeFlare([list(COMPLETED)])
    result = submit(flare, monkeypatch, kit)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        f"job {job_id(0)}: submitted",
        f"job {job_id(0)}: SUBMITTED",
        f"job {job_id(0)}: RUNNING",
        f"job {job_id(0)}: FINISHED:COMPLETED",
    ]
    assert "resume" not in flare.controller(0)
    assert flare.sessions == flare.closed == 1, "one session for all of it, closed in the end"


def test_detached_it_returns_at_once(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = FakeFlare([])
    result = submit(flare, monkeypatch, kit, "--detach")
    assert (result.exit_code, result.stdout) == (0, f"job {job_id(0)}: submitted\n")


def test_nobody_resumes_who_does_not_wait(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = FakeFlare([])
    check_refusal(submit(flare, monkeypatch, kit, "--detach", "--resume-on-failure"), "exclude each other")
    assert flare.sessions == 0


@pytest.mark.parametrize("status", ["FINISHED:EXECUTION_EXCEPTION", "FINISHED:ABORTED", "FINISHED:CAN_NOT_SCHEDULE"])
def test_a_job_that_fails_ends_with_1_and_is_not_resumed_unless_asked_for(
    kit: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    flare = FakeFlare([[Step(status, False)]])
    result = submit(flare, monkeypatch, kit)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == f"job {job_id(0)}: {status}"
    assert len(flare.submitted) == 1


def test_a_job_that_the_server_rejects_is_the_users_mistake(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = FakeFlare([])
    flare.refusals = [InvalidJobDefinition("invalid job definition: no\nsites.")]
    check_refusal(submit(flare, monkeypatch, kit), "the server refuses: invalid job definition: no sites.")


@pytest.mark.parametrize(
    "error", [SessionClosed("closed"), NoConnection("gone"), AuthenticationError("who?"), RuntimeError("runtime error")]
)
def test_a_session_that_breaks_is_made_anew(kit: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    flare = FakeFlare([[Step(), Step(error=error), Step(error=error), Step(), Step("FINISHED:COMPLETED", False)]])
    result = submit(flare, monkeypatch, kit)
    assert (result.exit_code, result.stderr) == (0, "")
    assert flare.sessions == 3


def test_a_server_that_stays_away_ends_the_following_in_one_sentence(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PATIENCE_S", 0.0)
    flare = FakeFlare([[Step(error=NoConnection("gone"))]])
    check_refusal(submit(flare, monkeypatch, kit), "cannot be reached: gone.")


def test_who_interrupts_leaves_the_job_running(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = FakeFlare([[Step(), Step(error=KeyboardInterrupt())]])
    result = submit(flare, monkeypatch, kit)
    assert result.exit_code == 130
    assert result.stderr == "no longer followed; the job goes on at the server\n"


def test_what_the_commands_look_for_is_what_workflow_and_flare_write() -> None:
    assert watch.ABORTED in inspect.getsource(Messenger)
    assert vars(watch)["RESULTS_FILE"] == RESULTS_FILE
    with pytest.raises(CensusError, match=watch.ABSENT):
        check_connected({"photo"}, set())
    assert SIGNATURE == NVFLARE_SIG_FILE
    assert f"{FederationController.__module__}.{FederationController.__name__}" in CONTROLLERS


# --- going on ---


@pytest.mark.parametrize("status", ["FINISHED:EXECUTION_EXCEPTION", "FINISHED:ABNORMAL"])
@pytest.mark.parametrize("found", [record("running", 2), aborted_record(2)])
def test_a_job_whose_process_died_goes_on_in_another(
    kit: Path, monkeypatch: pytest.MonkeyPatch, status: str, found: dict[str, Any]
) -> None:
    flare, result = resuming(kit, monkeypatch, [[Step(), Step(status, False)], COMPLETED], [found])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"job {job_id(1)}: submitted; it goes on with run {job_id(0)} after round 2" in result.stdout
    assert result.stdout.splitlines()[-1] == f"job {job_id(1)}: FINISHED:COMPLETED"
    assert flare.controller(1) == {**flare.controller(0), "resume": job_id(0)}
    assert flare.submitted[1]["folder"] == JOB.name
    assert len(set(flare.tokens)) == 2


def test_a_job_that_a_restarted_server_only_lists_goes_on_in_another(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flare, result = resuming(kit, monkeypatch, [RESTARTED, COMPLETED], [])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"job {job_id(0)}: the server was restarted and does not run it any more" in result.stdout
    assert flare.controller(1)["resume"] == job_id(0)


def test_a_job_that_the_server_lost_before_the_first_look_at_it_is_lost_after_a_while(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOST_S", 0.2)
    flare, result = resuming(kit, monkeypatch, [[Step("RUNNING", False, 2.0)], COMPLETED], [])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"job {job_id(0)}: the server has not run it for " in result.stdout
    assert flare.controller(1)["resume"] == job_id(0)


def test_without_being_told_to_it_ends_with_1_when_the_server_lost_the_job(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flare = FakeFlare([list(RESTARTED)])
    assert submit(flare, monkeypatch, kit).exit_code == 1
    assert len(flare.submitted) == 1


def test_a_job_that_is_between_its_process_and_its_status_is_not_lost(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [Step(), Step("RUNNING", False), Step("RUNNING", False), Step("FINISHED:COMPLETED", False)]
    flare, result = resuming(kit, monkeypatch, [steps], [])
    assert (result.exit_code, len(flare.submitted)) == (0, 1)


def test_a_job_that_a_restarted_server_starts_itself_is_not_lost(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        Step("SUBMITTED", False),
        Step("SUBMITTED", False, 2.0),
        Step("RUNNING", True, 2.0),
        Step("RUNNING", False, 2.0),
        Step("FINISHED:COMPLETED", False, 2.0),
    ]
    flare, result = resuming(kit, monkeypatch, [steps], [])
    assert (result.exit_code, len(flare.submitted)) == (0, 1)


def test_the_run_of_the_first_job_goes_on_however_often(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [aborted_record(rounds) for rounds in (1, 2, 3, 4, 5)]
    flare, result = resuming(kit, monkeypatch, [*[DIED] * 5, COMPLETED], records)
    assert result.exit_code == 0, "each job completed another round"
    assert [flare.controller(number)["resume"] for number in range(1, 6)] == [job_id(0)] * 5


def test_a_site_that_is_not_connected_is_named_before_anything_runs(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = FakeFlare([list(COMPLETED)])
    flare.sites = [("photo", "sketch")]
    result = submit(flare, monkeypatch, kit)
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: art_painting, cartoon not connected to the server; a run starts, and")


@pytest.mark.parametrize("rounds", [[2, 2, 2, 2], [4, 2, 3, 4]])
def test_it_gives_up_when_no_round_is_completed_any_more(
    kit: Path, monkeypatch: pytest.MonkeyPatch, rounds: list[int]
) -> None:
    monkeypatch.setattr(submission, "MAX_RESUMES", 3)
    flare, result = resuming(kit, monkeypatch, [DIED] * 4, [aborted_record(number) for number in rounds])
    assert result.exit_code == 1
    assert len(flare.submitted) == 4
    assert f"job {job_id(3)}: not resumed: it was resumed 3 times" in result.stdout


def test_a_run_whose_record_cannot_be_read_is_judged_by_its_status(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare, result = resuming(kit, monkeypatch, [DIED, COMPLETED], [])
    assert (result.exit_code, len(flare.submitted)) == (0, 2)


def test_a_resuming_job_that_died_before_it_had_a_record_is_tried_again(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flare, result = resuming(kit, monkeypatch, [DIED, DIED, COMPLETED], [aborted_record(2), None])
    assert (result.exit_code, len(flare.submitted)) == (0, 3)


def test_the_server_may_be_away_while_the_resuming_job_is_submitted(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = FakeFlare([list(DIED), list(COMPLETED)], {job_id(0): aborted_record(2)})
    submit_job, calls = flare.submit_job, 0

    def sometimes(path: str, submit_token: str) -> str:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise NoConnection("gone")
        return submit_job(path, submit_token)

    monkeypatch.setattr(flare, "submit_job", sometimes)
    assert submit(flare, monkeypatch, kit, "--resume-on-failure").exit_code == 0
    assert (calls, len(flare.submitted)) == (3, 2)


def test_a_job_that_goes_on_with_a_run_by_itself_is_resumed_for_that_run(
    tmp_path: Path, kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_resuming_job(JOB, tmp_path / "jobs", job_id(9))
    flare = FakeFlare([list(DIED), list(COMPLETED)], {job_id(0): None})
    result = submit(flare, monkeypatch, kit, "--resume-on-failure", job=job)
    assert (result.exit_code, len(flare.submitted)) == (0, 2)
    assert [flare.controller(number)["resume"] for number in (0, 1)] == [job_id(9)] * 2


# --- not going on ---


def test_a_job_whose_runs_cannot_go_on_is_refused_before_it_is_submitted(
    tmp_path: Path, kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_resuming_job(JOB, tmp_path / "jobs", None)
    (job / "app_server" / "config" / "config_fed_server.json").write_text('{"workflows": []}', encoding="utf-8")
    flare = FakeFlare([])
    check_refusal(submit(flare, monkeypatch, kit, "--resume-on-failure", job=job), "no workflow is a Federation")
    assert flare.submitted == []


@pytest.mark.parametrize(
    ("status", "found", "reason"),
    [
        ("FINISHED:ABORTED", aborted_record(2), "it was aborted by a person"),
        ("FINISHED:CAN_NOT_SCHEDULE", None, "it never ran (FINISHED:CAN_NOT_SCHEDULE)"),
        ("FINISHED:FAILED_TO_RUN", None, "it never ran (FINISHED:FAILED_TO_RUN)"),
        (
            "FINISHED:EXECUTION_EXCEPTION",
            record("stopped", 2, "site photo takes no further part: epsilon is spent."),
            "its run stopped for a reason of its own: site photo takes no further part: epsilon is spent",
        ),
        (
            "FINISHED:EXECUTION_EXCEPTION",
            record("stopped", 0, "rounds is -1."),
            "its run stopped for a reason of its own: rounds is -1",
        ),
        (
            "FINISHED:EXECUTION_EXCEPTION",
            aborted_record(0),
            "it has no complete round to go on from; the server's log says why",
        ),
        (
            "FINISHED:EXECUTION_EXCEPTION",
            None,
            "it has no complete round to go on from; the server's log says why",
        ),
    ],
)
def test_what_did_not_die_is_not_resumed_and_the_reason_is_said(
    kit: Path, monkeypatch: pytest.MonkeyPatch, status: str, found: Left, reason: str
) -> None:
    flare, result = resuming(kit, monkeypatch, [[Step(status, False)]], [found])
    assert (result.exit_code, len(flare.submitted)) == (1, 1)
    assert result.stdout.splitlines()[-1] == f"job {job_id(0)}: not resumed: {reason}."


def test_a_job_that_broke_off_after_its_run_had_finished_is_complete_and_not_resumed(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = Step("FINISHED:EXECUTION_EXCEPTION", False)
    flare, result = resuming(kit, monkeypatch, [[ended]], [record("finished", 3, None)])
    assert (result.exit_code, len(flare.submitted)) == (0, 1)
    assert result.stdout.splitlines()[-1] == (
        f"job {job_id(0)}: it broke off after its run had finished; the results are complete"
    )
