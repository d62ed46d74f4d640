# SPDX-License-Identifier: Apache-2.0
"""Accidents at one site while a job runs: that site misses rounds, by name and reason; the others go on."""

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fdg_plugins.controllers import RunRecord
from tests.processes import WORKER, command_line

from .conftest import JOB_TIMEOUT_S, Federation, change_protocol

ROUNDS = 6


@pytest.fixture
def long_job(job: Path, tmp_path: Path) -> Path:
    """A job whose rounds last seconds, so that something can happen in the middle of one."""
    copy = tmp_path / "long" / job.name
    shutil.copytree(job, copy)
    change_protocol(copy, rounds=ROUNDS, local_epochs=30)
    return copy


def worker_of(federation: Federation, site: str) -> psutil.Process:
    """Return the process in which a site trains."""
    folder = str(federation.folder / site)
    jobs = (process for process in federation.processes() if folder in command_line(process))
    return next(child for job in jobs for child in job.children() if WORKER in command_line(child))


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + JOB_TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def trains(federation: Federation, job: str, site: str, round_number: int) -> Callable[[], bool]:
    """Return a look whether a site has finished an epoch of a round."""
    return lambda: f"site {site} | round {round_number}/{ROUNDS} | epoch" in federation.log(site, job)


def reasons(record: RunRecord, site: str) -> list[str]:
    return [finished.failures[site] for finished in record.rounds if site in finished.failures]


def others_went_on(record: RunRecord) -> bool:
    return len(record.rounds) == ROUNDS and all(
        finished.aggregation is not None and {"cartoon", "sketch"} <= set(finished.sites) for finished in record.rounds
    )


@pytest.mark.parametrize("accident", [pytest.param(signal.SIGSEGV, marks=pytest.mark.nightly), signal.SIGKILL])
def test_a_training_that_crashes_costs_its_site_one_round(
    federation: Federation, long_job: Path, tmp_path: Path, accident: signal.Signals
) -> None:
    job = federation.session("lead").submit_job(str(long_job))
    until(trains(federation, job, "photo", 2), "photo never trained")
    worker_of(federation, "photo").send_signal(accident)
    record = federation.record_of(job, tmp_path / "result")
    assert len(reasons(record, "photo")) == 1
    assert accident.name in reasons(record, "photo")[0]
    assert others_went_on(record)
    assert "photo" in record.rounds[-1].sites


def test_a_slow_site_is_waited_for_as_long_as_configured_and_its_late_update_is_refused(
    federation: Federation, long_job: Path, tmp_path: Path
) -> None:
    change_protocol(long_job, patience=10)
    job = federation.session("lead").submit_job(str(long_job))
    until(trains(federation, job, "photo", 2), "photo never trained")
    worker = worker_of(federation, "photo")
    worker.suspend()
    until(lambda: f"round 2/{ROUNDS} | sites 2/3" in federation.log(job=job), "the round did not go on")
    worker.resume()
    record = federation.record_of(job, tmp_path / "result")
    assert reasons(record, "photo")[0] == "did not answer within 10 s after 2 others had."
    assert others_went_on(record)


def test_a_full_disk_at_a_site_keeps_its_answers_back_and_the_others_go_on(
    federation: Federation, long_job: Path, tmp_path: Path
) -> None:
    job = federation.session("lead").submit_job(str(long_job))
    until(trains(federation, job, "photo", 1), "photo never trained")
    audit = federation.folder / "photo" / "fdg_audit.jsonl"
    kept = audit.rename(audit.with_suffix(".kept"))
    try:
        audit.symlink_to("/dev/full")
        record = federation.record_of(job, tmp_path / "result")
    finally:
        audit.unlink()
        kept.rename(audit)
    assert reasons(record, "photo")
    assert all("No space left on device" in reason for reason in reasons(record, "photo"))
    assert others_went_on(record)
