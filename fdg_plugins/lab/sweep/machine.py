# SPDX-License-Identifier: Apache-2.0
"""The number of concurrent runs on a machine, and the threads, GPU and environment of each."""

import os
from collections.abc import Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import torch

from fdg_plugins.lab.sweep.processes import MARK
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX
from fdg_plugins.state.folders import VARIABLE as STATE_VARIABLE
from fdg_plugins.storage import user_path

THREADS = "FDG_THREADS"
STATE = "state"
SITES_PER_CORE = 2
_PATHS = ("FDG_DATA_ROOT", "FDG_CACHE", "FDG_DATASET_FILE", "FDG_PRETRAINED_FILE")


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
