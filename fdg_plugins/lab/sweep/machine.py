# SPDX-License-Identifier: Apache-2.0
"""What executes runs on a machine, how many at a time, and the threads, GPU and environment of each."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import torch

from fdg_plugins.lab.sweep.run import JOB, MARK, SHELL_SIGNS, STATE, WORKSPACE, Launch, check_signs
from fdg_plugins.record.run_files import SIMULATOR_FOLDER
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX
from fdg_plugins.state.folders import VARIABLE as STATE_VARIABLE
from fdg_plugins.storage import user_path

THREADS = "FDG_THREADS"
SITES_PER_CORE = 2
_PATHS = ("FDG_DATA_ROOT", "FDG_CACHE", "FDG_DATASET_FILE", "FDG_PRETRAINED_FILE")
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


class Machine(NamedTuple):
    """The resources that the runs share: ``gpus`` has one entry per concurrent run, None for a run without its own GPU.

    ``at_once`` is the number of sites of a run that compute at a time; None: as its kind has it.
    """

    cores: int
    gpus: tuple[str | None, ...]
    at_once: int | None = None


def find_machine(parallel: int | None, at_once: int | None, environment: Mapping[str, str]) -> Machine:
    """Return the resources for runs of ``at_once`` processes (None: one), ``parallel`` of them at a time.

    By default, each GPU that torch finds has a run; without GPUs, each process has a core.
    """
    cores, found = available_cores(), visible_gpus(environment)
    count = parallel or len(found) or max(1, cores // (at_once or 1))
    return Machine(cores, tuple(islice(cycle(found or (None,)), count)), at_once)


def sites_at_once(sites: int, cores: int, fitting: int) -> int:
    """Return how many of ``sites`` sites should have a process at the same time, of which the memory holds ``fitting``.

    All of them, while there are at most two per core: with fewer, FLARE starts a process for every task.
    """
    return sites if sites <= min(SITES_PER_CORE * cores, fitting) else min(cores, sites, fitting)


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that torch finds, as ``CUDA_VISIBLE_DEVICES`` names them; those that ``FDG_DEVICE`` leaves."""
    device = environment.get("FDG_DEVICE", "").strip()
    if device == "cpu" or not torch.cuda.is_available():
        return ()
    count = torch.cuda.device_count()
    named = list(filter(None, map(str.strip, environment.get("CUDA_VISIBLE_DEVICES", "").split(","))))
    found = tuple(named[:count] or map(str, range(count)))
    _, _, index = device.partition(":")
    return found[int(index) : int(index) + 1] if index.isdecimal() else found


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ignored_settings(environment: Mapping[str, str]) -> list[str]:
    """Return the ``FDG_*`` variables that would set a run's settings and that a sweep therefore withholds from it."""
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in OTHER_VARIABLES)


def machine_environment(environment: Mapping[str, str], data_root: Path | None) -> dict[str, str]:
    """Return the environment common to all runs, from the user's environment and the data root, if one is given.

    Of the ``FDG_*`` variables, it has those that say where and how this machine computes, with absolute paths.
    """
    own = {name: value for name in OTHER_VARIABLES if (value := environment.get(name, "").strip())}
    own |= {name: str(user_path(own[name], environment)) for name in _PATHS if name in own}
    if data_root is not None:
        own["FDG_DATA_ROOT"] = str(data_root.absolute())
    return {name: value for name, value in environment.items() if not name.startswith(PREFIX)} | own


def run_environment(environment: Mapping[str, str], folder: Path, threads: int, gpu: str | None) -> dict[str, str]:
    """Return the environment of the run in ``folder``, from that of all runs.

    Its sites have ``threads`` threads each, unless the user has set a number, and see only ``gpu``.
    """
    own = {MARK: str(folder), "PWD": str(folder), STATE_VARIABLE: str(folder / STATE)}
    if gpu is not None:
        # Not FLARE's -gpu: it counts the GPUs of the whole machine, and keeps a site's process only if the GPU's
        # number is repeated for each site.
        own |= {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "FDG_DEVICE": "cuda"}
    return {THREADS: str(threads), **environment, **own}


def launch(
    engine: Engine, folder: Path, sites: int, machine: Machine, environment: Mapping[str, str], gpu: str | None = None
) -> Launch:
    """Return how to execute a run of ``sites`` sites, whose threads together do not exceed the cores."""
    at_once = min(sites, machine.at_once or engine.processes or sites)
    threads = max(1, machine.cores // (len(machine.gpus) * at_once))
    own = run_environment(environment, folder, threads, gpu)
    return Launch(engine.title, engine.command(at_once, sites), engine.results, own, at_once)
