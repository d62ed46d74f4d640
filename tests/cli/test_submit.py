# SPDX-License-Identifier: Apache-2.0
"""``fdg submit`` and ``fdg resume`` against a server that is not there: what they follow, resume and refuse."""

import inspect
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from nvflare.fuel.flare_api.api_spec import InvalidJobDefinition, JobNotFound, NoConnection, SessionClosed
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE
from typer.testing import Result

from fdg_plugins.cli import submit as submission
from fdg_plugins.cli.jobs import SIGNATURE, write_resuming_job
from fdg_plugins.controllers import FederationController
from fdg_plugins.controllers.messenger import Messenger
from fdg_plugins.errors import CensusError
from fdg_plugins.flare import sessions
from fdg_plugins.lab.engine.workflow import CONTROLLERS
from fdg_plugins.record.census import check_connected
from tests.cli.commands import check_refusal, fdg

JOB = Path(__file__).parents[2] / "jobs" / "pacs_fedomg_ga"
SITES = ("photo", "art_painting", "cartoon", "sketch")
CONFIG = Path("app_server/config/config_fed_server.json")

Left = dict[str, Any] | str | None


class Step(NamedTuple):
    """What one look at a job shows, or the error in which it ends."""

    status: str = "RUNNING"
    is_running: bool = True
    start: float = 1.0
    error: BaseException | None = None


COMPLETED = [Step("SUBMITTED", False), Step(), Step("FINISHED:COMPLETED", False)]
DIED = [Step("SUBMITTED", False), Step(), Step("FINISHED:EXECUTION_EXCEPTION", False)]
RESTARTED = [Step("SUBMITTED", False), Step(), Step("RUNNING", False, 2.0)]
BROKEN = [Step("RUNNING", False)]


def job_id(number: int) -> str:
    """Return the id of the job that was submitted as number ``number``, counted from 0."""
    return f"{number:08x}-0000-4000-8000-000000000000"


def record(status: str = "running", rounds: int = 0, because: str | None = None) -> dict[str, Any]:
    """Return what the commands read of a run's record."""
    return {"status": status, "stopped_because": because, "rounds": [{}] * rounds}


def aborted_record(rounds: int) -> dict[str, Any]:
    return record("stopped", rounds, f"{submission.ABORTED} photo.")


class FakeFlare:
    """The server, and the kit of a person who uses it.

    ``scripts`` holds the steps of each job, in the order of submission. ``records`` are those of the jobs: None for a
    job that left none, text for one whose log alone says why it stopped, no entry for one that cannot be downloaded.
    """

    def __init__(self, kit: Path) -> None:
        self.kit = kit
        self.scripts: list[list[Step]] = []
        self.records: Sequence[Left] = ()
        self.sites: list[tuple[str, ...]] = [SITES]
        self.refusals: list[BaseException] = []
        self.submitted: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.sessions = self.closed = 0
        self._seen: dict[str, Step] = {}
        self._current = Step("none", False)

    def submit(self, *scripts: list[Step], records: Sequence[Left] = (), job: Path = JOB, on: bool = False) -> Result:
        """Run ``fdg submit`` for jobs that go through these steps; ``on``: with ``--resume-on-failure``."""
        self.scripts, self.records, self.submitted = [list(script) for script in scripts], records, []
        return fdg("submit", job, self.kit, *["--resume-on-failure"] * on)

    def resume(self, steps: list[Step], *options: object, job: Path = JOB) -> Result:
        """Run ``fdg resume`` for a run whose job goes through these steps."""
        self.scripts, self.submitted = [list(steps)], []
        return fdg("resume", job, "--kit", self.kit, "--run", job_id(0), *options)

    def connect(self, person: str, *_: Any, **__: Any) -> "FakeFlare":
        """Open a session, as ``open_session`` does."""
        assert person == "lead@example.org"
        print("Connecting to FLARE ...")  # noqa: T201 - as FLARE does
        self.sessions += 1
        return self

    def close(self) -> None:
        self.closed += 1
        raise RuntimeError("the server does not hear the farewell")

    def submit_job(self, path: str, submit_token: str) -> str:
        if self.refusals:
            raise self.refusals.pop(0)
        folder = Path(path)
        assert not list(folder.rglob("custom"))
        assert not list(folder.rglob(SIGNATURE)), "signed before"
        files = {str(file.relative_to(folder)): json.loads(file.read_bytes()) for file in folder.rglob("*.json")}
        self.submitted.append({**files, "folder": folder.name})
        self.tokens.append(submit_token)
        (folder / SIGNATURE).write_text('{"meta.json": "as FLARE does"}', encoding="utf-8")
        return job_id(len(self.submitted) - 1)

    def get_job_status(self, job: str) -> str:
        number = int(job[:8], 16)
        if number >= len(self.scripts):
            raise JobNotFound(f"no such job: {job}")
        script = self.scripts[number]
        self._current = self._seen[job] = script.pop(0) if len(script) > 1 else script[0]
        if self._current.error is not None:
            raise self._current.error
        return self._current.status

    def get_system_info(self) -> SimpleNamespace:
        sites = self.sites.pop(0) if len(self.sites) > 1 else self.sites[0]
        return SimpleNamespace(
            server_info=SimpleNamespace(start_time=self._current.start),
            client_info=[SimpleNamespace(name=site) for site in sites],
            job_info=[SimpleNamespace(job_id=job) for job, step in self._seen.items() if step.is_running],
        )

    def download_job_result(self, job: str, destination: str) -> str:
        number = int(job[:8], 16)
        if number >= len(self.records):
            raise RuntimeError("protocol error")
        folder = Path(destination) / job
        (folder / "workspace").mkdir(parents=True)
        found = self.records[number]
        if isinstance(found, str):
            line = f"2026-11-30 00:40:08,472 - FederationController - ERROR - [identity=fdg, wf=federation] - {found}\n"
            (folder / "workspace" / "log.txt").write_text(line, encoding="utf-8")
        elif found is not None:
            (folder / "workspace" / "results.json").write_text(json.dumps(found), encoding="utf-8")
        return str(folder)

    def controller(self, number: int) -> dict[str, Any]:
        arguments: dict[str, Any] = self.submitted[number][str(CONFIG)]["workflows"][0]["args"]
        return arguments


@pytest.fixture
def flare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeFlare:
    """The server, without the waits of those who ask it."""
    startup = tmp_path / "lead" / "startup"
    startup.mkdir(parents=True)
    for name in ("client.crt", "rootCA.pem"):
        (startup / name).touch()
    content = {"format_version": 1, "admin": {"username": "lead@example.org"}}
    (startup / "fed_admin.json").write_text(json.dumps(content), encoding="utf-8")
    flare = FakeFlare(tmp_path / "lead")
    monkeypatch.setattr(sessions, "open_session", flare.connect)
    monkeypatch.setattr(sessions, "POLL_S", 0.0)
    monkeypatch.setattr(submission, "POLL_S", 0.0)
    return flare


def test_it_submits_follows_and_says_how_the_job_ended(flare: FakeFlare) -> None:
    result = flare.submit(COMPLETED)
    assert (result.exit_code, result.stderr) == (0, "")
    states = ("submitted", "SUBMITTED", "RUNNING", "FINISHED:COMPLETED")
    assert result.stdout.splitlines() == [f"job {job_id(0)}: {state}" for state in states]
    assert "resume" not in flare.controller(0)
    assert flare.sessions == flare.closed == 1, "one session for all of it, closed in the end"
    for steps in (DIED[-1:], RESTARTED):
        assert flare.submit(steps).exit_code == 1
        assert len(flare.submitted) == 1, "it is not resumed unless asked for"
    refusal = "\nnvflare.fuel.common.excepts.ComponentNotAuthorized: component not authorized: epsilon is spent."
    for left in (record("stopped", 2, "epsilon is spent."), "stopped: epsilon is spent.", refusal):
        result = flare.submit(DIED, records=[left])
        assert result.stdout.splitlines()[-1] == f"job {job_id(0)}: its run stopped: epsilon is spent."


def test_what_the_server_or_the_kit_refuses_is_one_sentence(flare: FakeFlare, monkeypatch: pytest.MonkeyPatch) -> None:
    flare.refusals = [InvalidJobDefinition("invalid job definition: no\nsites.")]
    check_refusal(flare.submit(), "the server refuses: invalid job definition: no sites.")
    monkeypatch.setattr(submission, "PATIENCE_S", 0.0)
    check_refusal(flare.submit([Step(error=NoConnection("gone"))]), "cannot be reached: gone.")
    check_refusal(fdg("submit", JOB, flare.kit / "nowhere"), "is not a startup kit of a person")


def test_a_session_that_breaks_is_made_anew_and_who_interrupts_leaves_the_job_running(flare: FakeFlare) -> None:
    errors = [Step(error=SessionClosed("closed")), Step(error=RuntimeError("runtime error"))]
    result = flare.submit([Step(), *errors, Step(), Step("FINISHED:COMPLETED", False)])
    assert (result.exit_code, result.stderr, flare.sessions) == (0, "", 3)
    result = flare.submit([Step(), Step(error=KeyboardInterrupt())])
    assert (result.exit_code, result.stderr) == (130, "no longer followed; the job goes on at the server\n")


def test_what_the_commands_look_for_is_what_workflow_and_flare_write() -> None:
    assert submission.ABORTED in inspect.getsource(Messenger)
    with pytest.raises(CensusError) as caught:
        check_connected({"photo"}, set())
    assert submission.ABSENT in str(caught.value)
    assert SIGNATURE == NVFLARE_SIG_FILE
    assert f"{FederationController.__module__}.{FederationController.__name__}" in CONTROLLERS


def test_a_job_whose_process_died_goes_on_in_another(flare: FakeFlare) -> None:
    for found in (record("running", 2), aborted_record(2)):
        result = flare.submit(DIED, COMPLETED, records=[found], on=True)
        assert (result.exit_code, result.stderr) == (0, "")
        assert f"job {job_id(1)}: submitted; it resumes run {job_id(0)} after round 2" in result.stdout
        assert flare.controller(1) == {**flare.controller(0), "resume": job_id(0)}
        assert flare.submitted[1]["folder"] == JOB.name
    assert len(set(flare.tokens)) == 4


def test_a_job_that_the_server_only_lists_goes_on_in_another(flare: FakeFlare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "LOST_S", 0.2)
    for steps in (RESTARTED, [Step("RUNNING", False, 2.0)]):
        result = flare.submit(steps, COMPLETED, on=True)
        assert (result.exit_code, flare.controller(1)["resume"]) == (0, job_id(0))
        assert "the server was restarted and does not run" in result.stdout


def test_a_job_between_its_process_and_its_status_is_not_lost(flare: FakeFlare) -> None:
    queued = [Step("SUBMITTED", False, start) for start in (1.0, 2.0)]  # the server was restarted meanwhile
    ended = [Step("RUNNING", True, 2.0), Step("RUNNING", False, 2.0), Step("FINISHED:COMPLETED", False, 2.0)]
    assert flare.submit([*queued, *ended], on=True).exit_code == 0
    assert len(flare.submitted) == 1


def test_the_run_of_the_first_job_goes_on_however_often(
    flare: FakeFlare, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(submission, "MAX_RESUMES", 3)
    records = [aborted_record(rounds) for rounds in (1, 2, 3, 4, 5)]
    result = flare.submit(*[DIED] * 5, COMPLETED, records=records, on=True)
    assert result.exit_code == 0, "each job completed another round"
    assert [flare.controller(number)["resume"] for number in range(1, 6)] == [job_id(0)] * 5
    result = flare.submit(*[DIED] * 4, records=[aborted_record(number) for number in (4, 2, 3, 4)], on=True)
    assert (result.exit_code, len(flare.submitted)) == (1, 4)
    assert f"job {job_id(3)}: not resumed: it was resumed 3 times" in result.stdout
    result = flare.submit(DIED, DIED, COMPLETED, records=[aborted_record(2), None], on=True)
    assert (result.exit_code, len(flare.submitted)) == (0, 3), "the second died before it had a record"
    job = write_resuming_job(JOB, tmp_path, job_id(9))  # it resumes that run by itself
    assert flare.submit(DIED, COMPLETED, records=[None], job=job, on=True).exit_code == 0
    assert [flare.controller(number)["resume"] for number in (0, 1)] == [job_id(9)] * 2


def test_what_did_not_die_is_not_resumed_and_the_reason_is_said(flare: FakeFlare) -> None:
    for status, found, reason in (
        ("ABORTED", aborted_record(2), "it was aborted by a person"),
        ("CAN_NOT_SCHEDULE", None, "it never ran (FINISHED:CAN_NOT_SCHEDULE)"),
        ("EXECUTION_EXCEPTION", record("stopped", 2, "epsilon is spent."), "stopped by itself: epsilon is spent"),
        ("EXECUTION_EXCEPTION", aborted_record(0), "it has no complete round to go on from"),
        ("EXECUTION_EXCEPTION", None, "it has no complete round to go on from"),
        ("EXECUTION_EXCEPTION", "stopped: site x cannot take part: no.", "stopped by itself: site x cannot take part"),
    ):
        result = flare.submit([Step(f"FINISHED:{status}", False)], records=[found], on=True)
        assert (result.exit_code, len(flare.submitted)) == (1, 1)
        assert reason in result.stdout.splitlines()[-1]
    refused = flare.submit(DIED, DIED, records=[aborted_record(2), "stopped: run 1 has no checkpoint."], on=True)
    assert (refused.exit_code, len(flare.submitted)) == (1, 2), "another try would find none either"
    assert "not resumed: its run stopped by itself: run 1 has no checkpoint." in refused.stdout
    for passing in ("run 1 still goes on in another job.", "site x cannot take part: it is lost."):
        result = flare.submit(DIED, DIED, COMPLETED, records=[aborted_record(2), f"stopped: {passing}"], on=True)
        assert (result.exit_code, len(flare.submitted)) == (0, 3), "another try may find it changed"
    complete = flare.submit(DIED, records=[record("finished", 3)], on=True)
    assert (complete.exit_code, len(flare.submitted)) == (0, 1), "its run had finished before it broke off"


def test_resume_submits_the_same_job_told_to_go_on(flare: FakeFlare, tmp_path: Path) -> None:
    job = Path(shutil.copytree(JOB, tmp_path / JOB.name))
    (job / SIGNATURE).write_text('{"meta.json": "c2lnbmF0dXJl"}')  # as FLARE leaves it
    flare.sites = [(), ("photo",), SITES]
    result = flare.resume(BROKEN, job=job)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"job {job_id(0)}: submitted; it resumes run {job_id(0)}\n"
    assert flare.controller(0).pop("resume") == job_id(0)
    files = [path for path in JOB.rglob("*.json") if "custom" not in path.parts]
    texts = {str(path.relative_to(JOB)): json.loads(path.read_bytes()) for path in files}
    assert flare.submitted == [{**texts, "folder": JOB.name}]
    assert (job / SIGNATURE).exists()


def test_what_cannot_be_resumed_is_refused(flare: FakeFlare, tmp_path: Path) -> None:
    for steps, told in (([Step()], "still runs (RUNNING)"), (COMPLETED[-1:], "has completed: there is nothing")):
        check_refusal(flare.resume(steps), told)
        assert flare.submitted == []
    check_refusal(flare.resume(BROKEN, job=tmp_path), "is not a job: it has no meta.json")
    check_refusal(flare.resume(BROKEN, "--data-root", "x"), "without the other options")
    job = Path(shutil.copytree(JOB, tmp_path / "job"))
    (job / CONFIG).write_text('{"workflows": []}')
    check_refusal(flare.resume(BROKEN, job=job), "no workflow is a FederationController")
    check_refusal(flare.submit(job=job, on=True), "no workflow is a")
