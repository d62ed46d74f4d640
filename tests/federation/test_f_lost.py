# SPDX-License-Identifier: Apache-2.0
"""A site's machine is lost: it is noticed, the others go on, and what comes back takes part again."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from fdg_plugins.lab.sweep.processes import MARK
from tests.processes import command_line

from .conftest import COMMAND_TIMEOUT_S, PROTOCOL, ROOT, Federation, change_protocol, until

# While a site is lost a round lasts at least 5 s, the lead time; the start of its processes takes some of them.
ROUNDS = 30


@pytest.fixture
def gap_job(tmp_path: Path) -> Path:
    """``pacs_fedomg_ga``, whose sites remember something from round to round, small enough for two cores."""
    script = Path(sys.executable).with_name("fdg")
    source = ROOT / "jobs" / "pacs_fedomg_ga"
    subprocess.run([script, "export", "job", source, tmp_path], check=True, timeout=COMMAND_TIMEOUT_S)
    job = tmp_path / source.name
    change_protocol(job, **PROTOCOL)
    return job


def kill_machine(federation: Federation, site: str) -> None:
    """Kill all processes of a site as a power cut does."""
    kit = f"{federation.folder / site}{os.sep}"
    lines = {process: command_line(process) for process in federation.processes()}
    found = {process: line for process, line in lines.items() if any(kit in f"{part}/" for part in line.split())}
    assert len(found) >= 3, "its daemon, its own process, the one of the job"
    children: set[psutil.Process] = set()
    for process in found:
        with suppress(psutil.NoSuchProcess):
            children.update(process.children(recursive=True))
    # A daemon restarts what dies: first of all. Some end on their own meanwhile.
    for process in sorted({*found, *children}, key=lambda process: "sub_start.sh" not in found.get(process, "")):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs([*found, *children], timeout=60)


def start_machine(federation: Federation, site: str) -> None:
    """Start a site by the script of its kit, as its machine does when it is up again."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", str(federation.folder / site / "startup" / "start.sh")],
        env={**os.environ, "PATH": path, MARK: str(federation.folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=True,
        timeout=COMMAND_TIMEOUT_S,
    )


def trainings_since_return(federation: Federation, job: str, site: str) -> int:
    """Return how many trainings the site has been given since it came back."""
    assert not federation.meta(job)["status"].startswith("FINISHED"), federation.log()[-3000:]
    after = federation.log(job=job).partition(f"Client {site} is reconnected")[2]
    return after.count(f"assigned task to client {site}: name=train")


def test_lost_source_comes_back(own_federation: Federation, gap_job: Path, tmp_path: Path) -> None:
    change_protocol(gap_job, rounds=ROUNDS)
    job = own_federation.session("lead").submit_job(str(gap_job))
    own_federation.wait_until_running(job, "round 1")
    kill_machine(own_federation, "photo")
    until(lambda: "Client photo is deemed disconnected!" in own_federation.log(job=job), "photo is not given up")
    assert list((own_federation.folder / "photo" / "fdg_state" / job).glob("fdg_own_model_*.safetensors"))
    start_machine(own_federation, "photo")
    until(lambda: trainings_since_return(own_federation, job, "photo") >= 2, "photo is not back")

    record = own_federation.record_of(job, tmp_path / "results")
    assert len(record.rounds) == ROUNDS
    # A site that comes back between the tasks of a round has failed in the first and is in the update of the last.
    lost = [round_.round for round_ in record.rounds if "photo" not in round_.sites]
    assert all("photo" in record.rounds[number - 1].failures for number in lost)
    first, last = lost[0], lost[-1]
    assert first in (2, 3)
    assert lost == list(range(first, last + 1)), "away once, and then back for good"
    assert last < ROUNDS - 1
    for round_ in record.rounds:
        assert round_.aggregation is not None, round_.reason
        assert set(round_.sites) == {"cartoon", "sketch"} | ({"photo"} if round_.round not in lost else set())
    gaps = [round_.aggregation.gaps for round_ in record.rounds if round_.aggregation is not None]
    assert all(of_round is not None for of_round in gaps)
    again = gaps[last:]
    assert again[1] is not None
    assert again[1]["photo"] is not None
    assert f"site photo is back: job {job} was started there again" in own_federation.log()
