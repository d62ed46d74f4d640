# SPDX-License-Identifier: Apache-2.0
"""Runs of FLARE's simulator as a user starts them: a command in a folder, in processes of its own."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from fdg_plugins.controllers import RunRecord
from fdg_plugins.lab.sweep.machine import ONE_PROCESS
from fdg_plugins.record.run_files import SIMULATOR_FOLDER
from tests.finished_runs import record_in
from tests.processes import NVFLARE, execute, shell

JOBS = Path(__file__).parents[2] / "jobs"


@dataclass(frozen=True)
class Simulation:
    """What a simulator run left: exit code, everything it printed, the server's run folder."""

    returncode: int
    log: str
    folder: Path

    def record(self) -> RunRecord:
        return record_in(self.folder)

    def lines(self, *words: str) -> list[str]:
        return [line for line in self.log.splitlines() if all(word in line for word in words)]


class Simulator:
    """A user's folder with this project's jobs, and the command ``nvflare simulator`` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(JOBS, folder / "jobs")

    def run(self, *arguments: str, settings: dict[str, str], workspace: str = "simulator_workspace") -> Simulation:
        """Run ``nvflare simulator`` with ``arguments`` and the environment variables ``settings``."""
        return self._run([NVFLARE, "simulator", *arguments], settings, workspace)

    def run_in_one_process(self, job: str, settings: dict[str, str]) -> Simulation:
        """Run a job by the one-process engine, which gives the bits of the simulator in less time."""
        return self._run([*ONE_PROCESS, job, "one_process"], settings, "one_process")

    def _run(self, command: list[str], settings: dict[str, str], workspace: str) -> Simulation:
        done = execute(*command, folder=self.folder, env=shell(**settings))
        return Simulation(done.returncode, done.stdout, self.folder / workspace / SIMULATOR_FOLDER)


@pytest.fixture
def simulator(tmp_path: Path) -> Simulator:
    return Simulator(tmp_path)
