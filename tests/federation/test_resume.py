# SPDX-License-Identifier: Apache-2.0
"""Runs whose server or site is killed with signal 9: they go on after the last complete round, bit for bit.

The federation is one of its own, since its server dies, and since the last test stops it.
"""

import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from fdg_plugins.controllers import RunRecord
from fdg_plugins.errors import DataError
from fdg_plugins.lab.poc.processes import start_participant
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE, read_checkpoint
from fdg_plugins.record.run_files import LAST_FILE
from fdg_plugins.state.folders import OWNER_FILE, leftovers
from fdg_plugins.storage import load_tensors, read_json
from fdg_plugins.testing.inputs import same_bits
from tests.federation.conftest import JOB_ID, JOB_TIMEOUT_S, PROTOCOL, ROOT, Federation, change_protocol, kill, until
from tests.processes import FDG, execute

ROUNDS = 4
# Rounds long enough to be killed in the middle of one.
SETTINGS = {**PROTOCOL, "rounds": ROUNDS, "local_epochs": 8}


@pytest.fixture(scope="module")
def small_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedOMG with FedGA's weights at toy size, with its empty custom folders; not to be written to."""
    job = tmp_path_factory.mktemp("jobs") / "small"
    shutil.copytree(ROOT / "jobs" / "pacs_fedomg_ga", job)
    change_protocol(job, **SETTINGS)
    return job


class Submission:
    """A running ``fdg submit``, and what it has printed."""

    def __init__(self, federation: Federation, job: Path, *options: str) -> None:
        self.log = federation.folder / f"submit-{time.monotonic_ns()}.log"
        words = [FDG, "submit", str(job), str(lead(federation)), *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(words, env=federation.environment, stdout=log, stderr=subprocess.STDOUT)

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def first_job(self) -> str:
        until(lambda: JOB_ID.search(self.output) or self.process.poll() is not None, self.output)
        (first, *_) = JOB_ID.findall(self.output)
        return str(first)

    def end(self) -> int:
        try:
            return self.process.wait(JOB_TIMEOUT_S)
        finally:
            self.process.kill()


def lead(federation: Federation) -> Path:
    return federation.folder / "lead@fdg.example"


def wait_for_round(federation: Federation, run: str, number: int) -> None:
    """Return when the run's checkpoint holds round ``number``."""
    path = federation.folder / "server" / "fdg_state" / run / CHECKPOINT_FILE

    def has_round() -> bool:
        assert not federation.meta(run)["status"].startswith("FINISHED"), federation.meta(run)
        with suppress(DataError):
            return len(read_checkpoint(path, run).record.rounds) >= number
        return False

    until(has_round, f"no round {number}")


Results = tuple[RunRecord, dict[str, torch.Tensor]]


def results(federation: Federation, job: str, folder: Path) -> Results:
    federation.close()  # a session that was opened before the server died is none
    record = federation.record_of(job, folder)
    (model,) = folder.rglob(LAST_FILE)
    return record, load_tensors(model)


@pytest.fixture(scope="module")
def unbroken(own_federation: Federation, small_job: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The run that nothing happened to, by ``fdg submit``."""
    submission = Submission(own_federation, small_job)
    assert submission.end() == 0, submission.output
    return results(own_federation, submission.first_job(), tmp_path_factory.mktemp("unbroken"))


def check_goes_on(found: Results, run: str, expected: Results) -> None:
    """Fail unless a job went on with ``run`` and both have the same model, bit for bit, and the same evaluations."""
    assert found[0].run == run
    (resumed_after,) = found[0].resumed_after
    assert resumed_after >= 2
    assert same_bits(found[1], expected[1])
    assert found[0].evaluations == expected[0].evaluations
    assert len(found[0].rounds) == len(expected[0].rounds) == ROUNDS


def test_resume_by_itself(own_federation: Federation, small_job: Path, unbroken: Results, tmp_path: Path) -> None:
    submission = Submission(own_federation, small_job, "--resume-on-failure")
    run = submission.first_job()
    wait_for_round(own_federation, run, 2)
    for participant in ("server", "photo"):
        (kept,) = leftovers(own_federation.folder / participant, run=run)
        assert kept.kept_because is not None, "fdg kit clean must see that it is in use"
    assert kill(own_federation, "photo", run), "the site has no process for the job"
    assert submission.end() == 0, submission.output
    assert own_federation.meta(run)["status"] == "FINISHED:EXECUTION_EXCEPTION"
    *_, last = JOB_ID.findall(submission.output)
    assert last != run
    check_goes_on(results(own_federation, last, tmp_path), run, unbroken)


def test_resume_by_one_command(own_federation: Federation, small_job: Path, unbroken: Results, tmp_path: Path) -> None:
    submission = Submission(own_federation, small_job)
    run = submission.first_job()
    submission.process.kill()  # nobody follows the job
    submission.process.wait()
    wait_for_round(own_federation, run, 2)
    assert kill(own_federation, "server") >= 3, "daemon, server and job process"
    owner = read_json(own_federation.folder / "server" / "fdg_state" / run / OWNER_FILE)
    assert isinstance(owner, dict)
    assert owner["name"] == lead(own_federation).name
    assert owner["org"]
    start_participant(own_federation.folder, "server")
    assert own_federation.meta(run)["status"] == "RUNNING", "FLARE goes on listing it"

    deadline = time.monotonic() + JOB_TIMEOUT_S
    words = [FDG, "resume", small_job, "--kit", lead(own_federation), "--run", run]
    while (done := execute(*words, env=own_federation.environment)).returncode and time.monotonic() < deadline:
        assert "cannot be reached" in done.stdout, done.stdout
    assert done.returncode == 0, done.stdout
    found_id = JOB_ID.search(done.stdout)
    assert found_id, done.stdout
    assert f"resumes run {run}" in done.stdout
    check_goes_on(results(own_federation, found_id.group(), tmp_path), run, unbroken)


def test_stop_leaves_no_process_though_daemons_restart_what_dies(own_federation: Federation) -> None:
    pid = own_federation.folder / "photo" / "pid.fl"
    killed = pid.read_text(encoding="utf-8")
    for process in own_federation.processes():
        if process.pid == int(killed):
            process.kill()
    until(lambda: pid.read_text(encoding="utf-8") not in ("", killed), "FLARE's daemon has not restarted the site")
    stopped = own_federation.control("stop")
    assert stopped.returncode == 0, stopped.stdout
    time.sleep(6)  # a daemon looks every 5 seconds
    assert own_federation.processes() == []
    assert not list(own_federation.folder.glob("*/*pid.fl"))
    again = own_federation.control("stop")
    assert (again.returncode, "0 processes ended" in again.stdout) == (0, True)
