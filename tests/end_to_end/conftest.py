# SPDX-License-Identifier: Apache-2.0
"""Runs of FLARE's simulator as a user starts them: a command in a folder, in processes of its own."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fdg_plugins.controllers import RunRecord
from fdg_plugins.lab.sweep.machine import ONE_PROCESS

JOBS = Path(__file__).parents[2] / "jobs"
TIMEOUT_S = 2400


@dataclass(frozen=True)
class Simulation:
    """What a simulator run left: exit code, everything it printed, the server's run folder."""

    returncode: int
    log: str
    folder: Path

    def record(self) -> RunRecord:
        """Return the record of the run."""
        return RunRecord.model_validate_json((self.folder / "results.json").read_bytes())

    def lines(self, *words: str) -> list[str]:
        """Return the printed lines that hold all ``words``."""
        return [line for line in self.log.splitlines() if all(word in line for word in words)]


class Simulator:
    """A user's folder with this project's jobs, and the command ``nvflare simulator`` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(JOBS, folder / "jobs")

    def run(self, *arguments: str, settings: dict[str, str], workspace: str = "simulator_workspace") -> Simulation:
        """Run ``nvflare simulator`` with ``arguments`` and the environment variables ``settings``."""
        command = [str(Path(sys.executable).with_name("nvflare")), "simulator", *arguments]
        return self._run(command, settings, workspace)

    def run_in_one_process(self, job: str, settings: dict[str, str]) -> Simulation:
        """Run a job by the one-process engine, which gives the bits of the simulator in less time."""
        return self._run([*ONE_PROCESS, job, "one_process"], settings, "one_process")

    def _run(self, command: list[str], settings: dict[str, str], workspace: str) -> Simulation:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FDG_")}
        completed = subprocess.run(
            command,
            cwd=self.folder,
            env={**clean, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        run_folder = self.folder / workspace / "server" / "simulate_job"
        return Simulation(completed.returncode, completed.stdout, run_folder)


@pytest.fixture
def simulator(tmp_path: Path) -> Simulator:
    """A user's folder of the test's own."""
    return Simulator(tmp_path)
