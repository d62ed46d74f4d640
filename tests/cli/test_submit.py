# SPDX-License-Identifier: Apache-2.0
"""``fdg submit`` and ``fdg resume`` against a server that is not there: what they follow, resume and refuse."""

import inspect
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from nvflare.fuel.flare_api.api_spec import InvalidJobDefinition, NoConnection, SessionClosed
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
from tests.cli.commands import check_refusal
from tests.cli.session_stubs import (
    COMPLETED,
    DIED,
    JOB,
    SITES,
    FakeFlare,
    Left,
    Step,
    aborted_record,
    job_id,
    make_person_kit,
    record,
    run,
)

RESTARTED = [Step("SUBMITTED", False), Step(), Step("RUNNING", False, 2.0)]
BROKEN = [Step("RUNNING", False)]
CONFIG = Path("app_server/config/config_fed_server.json")


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A person's startup kit."""
    return make_person_kit(tmp_path / "lead")


def submit(flare: FakeFlare, monkeypatch: pytest.MonkeyPatch, kit: Path, *options: object, job: Path = JOB) -> Result:
    return run(flare, monkeypatch, "submit", job, kit, *options)


def resuming(
    kit: Path, monkeypatch: pytest.MonkeyPatch, scripts: list[list[Step]], records: Sequence[Left]
) -> tuple[FakeFlare, Result]:
    """Run ``fdg submit --resume-on-failure``; ``scripts`` and ``records`` are of the jobs in their order."""
    left = {job_id(number): found for number, found in enumerate(records)}
    flare = FakeFlare([list(script) for script in scripts], left)
    return flare, submit(flare, monkeypatch, kit, "--resume-on-failure")


def test_it_submits_follows_and_says_how_the_job_ended(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = FakeFlare([list(COMPLETED)])
    result = submit(flare, monkeypatch, kit)
    assert (result.exit_code, result.stderr) == (0, "")
    states = ("submitted", "SUBMITTED", "RUNNING", "FINISHED:COMPLETED")
    assert result.stdout.splitlines() == [f"job {job_id(0)}: {state}" for state in states]
    assert "resume" not in flare.controller(0)
    assert flare.sessions == flare.closed == 1, "one session for all of it, closed in the end"


@pytest.mark.parametrize("steps", [[Step("FINISHED:EXECUTION_EXCEPTION", False)], RESTARTED])
def test_a_job_that_fails_ends_with_1_and_is_not_resumed_unless_asked_for(
    kit: Path, monkeypatch: pytest.MonkeyPatch, steps: list[Step]
) -> None:
    flare = FakeFlare([list(steps)])
    assert submit(flare, monkeypatch, kit).exit_code == 1
    assert len(flare.submitted) == 1


def test_what_the_server_or_the_kit_refuses_is_one_sentence(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flare = FakeFlare([])
    flare.refusals = [InvalidJobDefinition("invalid job definition: no\nsites.")]
    check_refusal(submit(flare, monkeypatch, kit), "the server refuses: invalid job definition: no sites.")
    monkeypatch.setattr(watch, "PATIENCE_S", 0.0)
    away = FakeFlare([[Step(error=NoConnection("gone"))]])
    check_refusal(submit(away, monkeypatch, kit), "cannot be reached: gone.")
    check_refusal(submit(flare, monkeypatch, tmp_path / "nowhere"), "is not a startup kit of a person")


def test_a_session_that_breaks_is_made_anew(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [Step(error=SessionClosed("closed")), Step(error=RuntimeError("runtime error"))]
    flare = FakeFlare([[Step(), *errors, Step(), Step("FINISHED:COMPLETED", False)]])
    result = submit(flare, monkeypatch, kit)
    assert (result.exit_code, result.stderr, flare.sessions) == (0, "", 3)


def test_who_interrupts_leaves_the_job_running(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = submit(FakeFlare([[Step(), Step(error=KeyboardInterrupt())]]), monkeypatch, kit)
    assert (result.exit_code, result.stderr) == (130, "no longer followed; the job goes on at the server\n")


def test_what_the_commands_look_for_is_what_workflow_and_flare_write() -> None:
    assert watch.ABORTED in inspect.getsource(Messenger)
    with pytest.raises(CensusError) as caught:
        check_connected({"photo"}, set())
    assert watch.ABSENT in str(caught.value)
    assert SIGNATURE == NVFLARE_SIG_FILE
    assert f"{FederationController.__module__}.{FederationController.__name__}" in CONTROLLERS


@pytest.mark.parametrize("found", [record("running", 2), aborted_record(2)])
def test_a_job_whose_process_died_goes_on_in_another(
    kit: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, object]
) -> None:
    flare, result = resuming(kit, monkeypatch, [DIED, COMPLETED], [found])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"job {job_id(1)}: submitted; it goes on with run {job_id(0)} after round 2" in result.stdout
    assert flare.controller(1) == {**flare.controller(0), "resume": job_id(0)}
    assert flare.submitted[1]["folder"] == JOB.name
    assert len(set(flare.tokens)) == 2


@pytest.mark.parametrize(
    ("steps", "told"),
    [(RESTARTED, "the server was restarted and does not run"), ([Step("RUNNING", False, 2.0)], "has not run it for")],
)
def test_a_job_that_the_server_only_lists_goes_on_in_another(
    kit: Path, monkeypatch: pytest.MonkeyPatch, steps: list[Step], told: str
) -> None:
    monkeypatch.setattr(watch, "LOST_S", 0.2)
    flare, result = resuming(kit, monkeypatch, [steps, COMPLETED], [])
    assert result.exit_code == 0
    assert told in result.stdout
    assert flare.controller(1)["resume"] == job_id(0)


@pytest.mark.parametrize(
    "steps",
    [
        [Step(), Step("RUNNING", False), Step("RUNNING", False)],
        [
            Step("SUBMITTED", False),
            Step("SUBMITTED", False, 2.0),
            Step("RUNNING", True, 2.0),
            Step("RUNNING", False, 2.0),
        ],
    ],
)
def test_a_job_between_its_process_and_its_status_is_not_lost(
    kit: Path, monkeypatch: pytest.MonkeyPatch, steps: list[Step]
) -> None:
    flare, result = resuming(kit, monkeypatch, [[*steps, Step("FINISHED:COMPLETED", False, 2.0)]], [])
    assert (result.exit_code, len(flare.submitted)) == (0, 1)


def test_the_run_of_the_first_job_goes_on_however_often(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "MAX_RESUMES", 3)
    records = [aborted_record(rounds) for rounds in (1, 2, 3, 4, 5)]
    flare, result = resuming(kit, monkeypatch, [*[DIED] * 5, COMPLETED], records)
    assert result.exit_code == 0, "each job completed another round"
    assert [flare.controller(number)["resume"] for number in range(1, 6)] == [job_id(0)] * 5
    flare, result = resuming(kit, monkeypatch, [DIED] * 4, [aborted_record(number) for number in (4, 2, 3, 4)])
    assert (result.exit_code, len(flare.submitted)) == (1, 4)
    assert f"job {job_id(3)}: not resumed: it was resumed 3 times" in result.stdout


def test_a_resuming_job_that_died_before_it_had_a_record_is_tried_again(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flare, result = resuming(kit, monkeypatch, [DIED, DIED, COMPLETED], [aborted_record(2), None])
    assert (result.exit_code, len(flare.submitted)) == (0, 3)


def test_a_job_that_goes_on_with_a_run_by_itself_is_resumed_for_that_run(
    tmp_path: Path, kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_resuming_job(JOB, tmp_path / "jobs", job_id(9))
    flare = FakeFlare([list(DIED), list(COMPLETED)], {job_id(0): None})
    assert submit(flare, monkeypatch, kit, "--resume-on-failure", job=job).exit_code == 0
    assert [flare.controller(number)["resume"] for number in (0, 1)] == [job_id(9)] * 2


@pytest.mark.parametrize(
    ("status", "found", "reason"),
    [
        ("ABORTED", aborted_record(2), "it was aborted by a person"),
        ("CAN_NOT_SCHEDULE", None, "it never ran (FINISHED:CAN_NOT_SCHEDULE)"),
        ("EXECUTION_EXCEPTION", record("stopped", 2, "epsilon is spent."), "a reason of its own: epsilon is spent"),
        ("EXECUTION_EXCEPTION", aborted_record(0), "it has no complete round to go on from"),
        ("EXECUTION_EXCEPTION", None, "it has no complete round to go on from"),
    ],
)
def test_what_did_not_die_is_not_resumed_and_the_reason_is_said(
    kit: Path, monkeypatch: pytest.MonkeyPatch, status: str, found: Left, reason: str
) -> None:
    flare, result = resuming(kit, monkeypatch, [[Step(f"FINISHED:{status}", False)]], [found])
    assert (result.exit_code, len(flare.submitted)) == (1, 1)
    assert reason in result.stdout.splitlines()[-1]


def test_a_job_that_broke_off_after_its_run_had_finished_is_complete(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flare, result = resuming(kit, monkeypatch, [DIED], [record("finished", 3, None)])
    assert (result.exit_code, len(flare.submitted)) == (0, 1)
    assert result.stdout.splitlines()[-1].endswith("the results are complete")


def resume(flare: FakeFlare, monkeypatch: pytest.MonkeyPatch, job: Path, kit: Path, *options: object) -> Result:
    return run(flare, monkeypatch, "resume", job, "--kit", kit, "--run", job_id(0), *options)


def test_resume_submits_the_same_job_told_to_go_on(kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Path(shutil.copytree(JOB, tmp_path / JOB.name))
    (job / SIGNATURE).write_text('{"meta.json": "c2lnbmF0dXJl"}')  # as FLARE leaves it
    flare = FakeFlare([BROKEN])
    flare.sites = [(), ("photo",), SITES]
    result = resume(flare, monkeypatch, job, kit)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"job {job_id(0)}: submitted; it goes on with run {job_id(0)}\n"
    assert flare.controller(0).pop("resume") == job_id(0)
    texts = {
        str(path.relative_to(JOB)): path.read_bytes() for path in JOB.rglob("*.json") if "custom" not in path.parts
    }
    assert flare.submitted == [{**{path: json.loads(text) for path, text in texts.items()}, "folder": JOB.name}]
    assert (job / SIGNATURE).exists()


def test_what_cannot_be_resumed_is_refused(kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for steps, told in ((Step(), "still runs (RUNNING)"), (COMPLETED[-1], "has completed: there is nothing")):
        flare = FakeFlare([[steps]])
        check_refusal(resume(flare, monkeypatch, JOB, kit), told)
        assert flare.submitted == []
    check_refusal(resume(FakeFlare([BROKEN]), monkeypatch, tmp_path, kit), "is not a job: it has no meta.json")
    check_refusal(resume(FakeFlare([BROKEN]), monkeypatch, JOB, kit, "--data-root", "x"), "without the other options")
    job = Path(shutil.copytree(JOB, tmp_path / "job"))
    (job / CONFIG).write_text('{"workflows": []}')
    check_refusal(resume(FakeFlare([BROKEN]), monkeypatch, job, kit), "no workflow is a FederationController")
    check_refusal(submit(FakeFlare([]), monkeypatch, kit, "--resume-on-failure", job=job), "no workflow is a")
