# SPDX-License-Identifier: Apache-2.0
"""What executes a job: one process of this package, FLARE's simulator, or a federation provisioned for it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from fdg_plugins.lab.sweep.folder import JOB, SHELL_SIGNS, WORKSPACE, check_signs
from fdg_plugins.lab.sweep.machine import STATE, Machine, run_environment
from fdg_plugins.lab.sweep.processes import Launch
from fdg_plugins.record.run_files import SIMULATOR_FOLDER

SIMULATORS_MOST = 100  # sites, unless the command says more
SIMULATOR = (str(Path(sys.executable).with_name("nvflare")), "simulator")
# Modules that are higher in the order of imports; they are run, not imported.
ONE_PROCESS = (sys.executable, "-P", "-m", "fdg_plugins.lab.engine.one_process")
FEDERATION = (sys.executable, "-P", "-m", "fdg_plugins.cli.one_federation")
RESULTS = "results"


class EngineName(StrEnum):
    """The names of the :data:`ENGINES`."""

    SIMULATOR = "simulator"
    PROCESS = "process"
    POC = "poc"


class Engine(NamedTuple):
    """What executes jobs; ``title`` names it in messages.

    ``command`` returns program and arguments, for so many sites at a time, of so many. ``processes`` is the number of
    processes in which sites compute unless the user asks for another, None for one per site. ``results``, relative to
    a run's folder, receives record and models. ``splits_at``: signs at which it would split a path, beside blanks.
    """

    title: str
    command: Callable[[int, int], Sequence[str]]
    processes: int | None = None
    results: Path = Path(WORKSPACE, SIMULATOR_FOLDER)
    splits_at: str = ""

    def check_path(self, folder: Path) -> None:
        """Raise ``SettingsError`` for a path that the engine would split."""
        if self.splits_at:
            check_signs(folder.absolute(), self.splits_at)


def _simulation(at_once: int, sites: int) -> Sequence[str]:
    many = ("-m", str(sites)) if sites > SIMULATORS_MOST else ()
    return (*SIMULATOR, JOB, "-w", WORKSPACE, "-t", str(at_once), *many)


def _one_process(at_once: int, _: int) -> Sequence[str]:
    return (*ONE_PROCESS, JOB, WORKSPACE, *([str(at_once)] if at_once > 1 else []))


def _federation(_: int, __: int) -> Sequence[str]:  # every site computes when it has a task
    return (*FEDERATION, JOB, WORKSPACE, STATE)


ENGINES = {
    EngineName.SIMULATOR: Engine("FLARE's simulator", _simulation, splits_at="\"'\\#"),
    EngineName.PROCESS: Engine("one process", _one_process, processes=1),
    EngineName.POC: Engine(
        "a separate federation", _federation, results=Path(WORKSPACE, RESULTS), splits_at=SHELL_SIGNS
    ),
}


def launch(
    engine: Engine, folder: Path, sites: int, machine: Machine, environment: Mapping[str, str], gpu: str | None = None
) -> Launch:
    """Return how to execute a run of ``sites`` sites, whose threads together do not exceed the cores."""
    at_once = min(sites, machine.at_once or engine.processes or sites)
    threads = max(1, machine.cores // (len(machine.gpus) * at_once))
    own = run_environment(environment, folder, threads, gpu)
    return Launch(engine.title, engine.command(at_once, sites), engine.results, own, at_once)
