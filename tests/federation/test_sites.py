# SPDX-License-Identifier: Apache-2.0
"""Accidents at one site while a job runs: that site misses rounds, by name and reason; the others go on."""

import signal
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.federation.conftest import Federation, change_protocol, until
from tests.processes import WORKER, command_line

ROUNDS = 8
PATIENCE = 40  # seconds, for a training process that starts anew on a busy machine


def worker_of(federation: Federation, site: str) -> psutil.Process:
    folder = str(federation.folder / site)
    jobs = (process for process in federation.processes() if folder in command_line(process))
    return next(child for job in jobs for child in job.children() if WORKER in command_line(child))


def test_accidents_cost_their_site_alone(federation: Federation, job: Path, tmp_path: Path) -> None:
    change_protocol(job, rounds=ROUNDS, local_epochs=30, patience=PATIENCE)  # rounds last seconds
    run = federation.session("lead").submit_job(str(job))

    def trains(number: int) -> Callable[[], bool]:
        return lambda: f"site photo | round {number}/{ROUNDS} | epoch" in federation.log("photo", run)

    until(trains(2), "photo never trained")
    worker_of(federation, "photo").send_signal(signal.SIGKILL)
    until(trains(4), "photo was not back two rounds later")
    worker = worker_of(federation, "photo")
    worker.suspend()
    until(lambda: f"round 4/{ROUNDS} | sites 2/3" in federation.log(job=run), "the round did not go on")
    worker.resume()
    record = federation.record_of(run, tmp_path / "result")
    reasons = {one.round: one.failures["photo"] for one in record.rounds if "photo" in one.failures}
    assert "SIGKILL" in reasons.pop(2)
    assert reasons.pop(4) == f"did not answer within {PATIENCE} s after 2 others had."
    assert {"photo" in record.rounds[number - 1].sites for number in (1, 3)} == {True}, "a crash costs one round"
    assert len(record.rounds) == ROUNDS
    assert "photo" in record.rounds[-1].sites
    for finished in record.rounds:
        assert finished.aggregation is not None
        assert {"cartoon", "sketch"} <= set(finished.sites)
