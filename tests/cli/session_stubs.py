# SPDX-License-Identifier: Apache-2.0
"""A server of a federation as FLARE's sessions show it, whose jobs go through steps that a test has written down."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from nvflare.fuel.flare_api.api_spec import JobNotFound
from typer.testing import Result

from fdg_plugins.cli import watch
from fdg_plugins.cli.resume import SIGNATURE
from tests.cli.commands import fdg

JOB = Path(__file__).parents[2] / "jobs" / "pacs_fedomg_ga"
SITES = ("photo", "art_painting", "cartoon", "sketch")


Left = dict[str, Any] | None


class Step(NamedTuple):
    """What one look at a job shows; or the error that the look ends in."""

    status: str = "RUNNING"
    is_running: bool = True
    start: float = 1.0
    error: BaseException | None = None


COMPLETED = [Step("SUBMITTED", False), Step(), Step("FINISHED:COMPLETED", False)]
DIED = [Step("SUBMITTED", False), Step(), Step("FINISHED:EXECUTION_EXCEPTION", False)]


def job_id(number: int) -> str:
    """Return the id of the job that was submitted as number ``number``, counted from 0."""
    return f"{number:08x}-0000-4000-8000-000000000000"


def record(status: str = "running", rounds: int = 0, because: str | None = None) -> dict[str, Any]:
    """Return what the commands read of a run's record."""
    return {"status": status, "stopped_because": because, "rounds": [{}] * rounds}


def aborted_record(rounds: int) -> dict[str, Any]:
    """Return the record of a run whose job FLARE ended, since a site's process was gone."""
    return record("stopped", rounds, f"{watch.ABORTED} photo.")


class FakeFlare:
    """The server: ``scripts`` holds the steps of each job, in the order of submission.

    ``records`` are the jobs' records: None for a job that left none, no entry for one that cannot be downloaded.
    """

    def __init__(self, scripts: list[list[Step]], records: Mapping[str, Left] | None = None) -> None:
        self.scripts = scripts
        self.records = dict(records or {})
        self.sites: list[tuple[str, ...]] = [SITES]
        self.refusals: list[BaseException] = []
        self.submitted: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.sessions = self.closed = 0
        self._seen: dict[str, Step] = {}
        self._current = Step("none", False)

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
        self._current = script.pop(0) if len(script) > 1 else script[0]
        self._seen[job] = self._current
        if self._current.error is not None:
            raise self._current.error
        return self._current.status

    def get_system_info(self) -> SimpleNamespace:
        jobs = [SimpleNamespace(job_id=job) for job, step in self._seen.items() if step.is_running]
        sites = self.sites.pop(0) if len(self.sites) > 1 else self.sites[0]
        return SimpleNamespace(
            server_info=SimpleNamespace(start_time=self._current.start),
            client_info=[SimpleNamespace(name=site) for site in sites],
            job_info=jobs,
        )

    def download_job_result(self, job: str, destination: str) -> str:
        if job not in self.records:
            raise RuntimeError("protocol error")
        folder = Path(destination) / job
        (folder / "workspace").mkdir(parents=True)
        if (found := self.records[job]) is not None:
            (folder / "workspace" / "results.json").write_text(json.dumps(found), encoding="utf-8")
        return str(folder)

    def controller(self, number: int) -> dict[str, Any]:
        """Return the arguments of the workflow of a submitted job."""
        config = self.submitted[number]["app_server/config/config_fed_server.json"]
        arguments: dict[str, Any] = config["workflows"][0]["args"]
        return arguments


def make_person_kit(folder: Path) -> Path:
    """Write what makes a folder the startup kit of a person."""
    (folder / "startup").mkdir(parents=True)
    for name in ("client.crt", "rootCA.pem"):
        (folder / "startup" / name).write_text("", encoding="utf-8")
    content = {"format_version": 1, "admin": {"username": "lead@example.org"}}
    (folder / "startup" / "fed_admin.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def run(flare: FakeFlare, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Result:
    """Run ``fdg`` with the arguments against the server, without its waits."""
    monkeypatch.setattr(watch, "open_session", flare.connect)
    monkeypatch.setattr(watch, "POLL_S", 0.0)
    return fdg(*arguments)
