# SPDX-License-Identifier: Apache-2.0
"""The number of concurrent runs on a machine, and the threads, GPU and environment of each."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.sweep.processes import MARK
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX
from fdg_plugins.state.folders import VARIABLE as STATE_VARIABLE
from fdg_plugins.storage import user_path

THREADS = "FDG_THREADS"
STATE = "state"
SITES_PER_CORE = 2
_PATHS = ("FDG_DATA_ROOT", "FDG_CACHE", "FDG_DATASET_FILE", "FDG_PRETRAINED_FILE")
_GPU = re.compile(r"\d+|(GPU|MIG)-[A-Za-z0-9-]+")


@dataclass(frozen=True)
class Machine:
    """The resources that the runs share: ``gpus`` has one entry per concurrent run, None for a run without its own GPU.

    ``threads`` is the number of sites of a run that compute at a time, FLARE's ``-t``; None for all of them.
    """

    cores: int
    gpus: tuple[str | None, ...]
    threads: int | None = None

    def threads_of(self, sites: int) -> int:
        """Return how many of ``sites`` sites compute at a time."""
        return min(sites, self.threads or sites)

    def arithmetic_threads(self, sites: int) -> int:
        """Return the arithmetic threads per site, so that all of them together do not exceed the cores."""
        return max(1, self.cores // (len(self.gpus) * self.threads_of(sites)))


def find_machine(
    sites: int, parallel: int | None, gpus: str | None, threads: int | None, environment: Mapping[str, str]
) -> Machine:
    """Return the resources for runs of at most ``sites`` processes, from the user's options (None: not set).

    By default, one run uses each GPU that torch finds; without GPUs, there are as many runs as leave each site a core,
    at least one. All sites of a run compute at once: with fewer, FLARE starts a new process for every task of each
    site, which costs more (seconds each) than sharing cores does. Raises ``SettingsError`` for incompatible options.
    """
    cores, found = available_cores(), visible_gpus(environment)
    if gpus is not None:
        names = tuple(name.strip() for name in gpus.split(","))
        if parallel is not None:
            raise SettingsError("--gpus and --parallel exclude each other: one run at a time goes on each GPU named.")
        if not found or not all(map(_GPU.fullmatch, names)):
            expected = f"numbers or UUIDs of GPUs that torch finds, such as 0,1; it finds {', '.join(found) or 'none'}"
            raise SettingsError(field="--gpus", value=gpus, expected=expected)
        return Machine(cores, names, threads)
    fitting = max(1, cores // min(sites, threads or sites))
    slots = tuple(islice(cycle(found), parallel or len(found))) if found else (None,) * (parallel or fitting)
    return Machine(cores, slots, threads)


def sites_at_once(sites: int, cores: int, fitting: int) -> int:
    """Return how many of ``sites`` sites should have a process at the same time.

    All of them, while there are at most two per core and the memory holds them (``fitting``): with fewer, FLARE starts
    a process for every task. Otherwise as many as there are cores, and memory for.
    """
    return sites if sites <= min(SITES_PER_CORE * cores, fitting) else min(cores, sites, fitting)


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that torch finds, as named in ``CUDA_VISIBLE_DEVICES``.

    None if ``FDG_DEVICE`` is the CPU, and only the one that it names if it names one.
    """
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

    Of the ``FDG_*`` variables, it contains only those that say where and how this machine computes. Relative paths are
    made absolute, since each run has its own working folder.
    """
    own = {name: value for name in OTHER_VARIABLES if (value := environment.get(name, "").strip())}
    own |= {name: str(user_path(own[name], environment)) for name in _PATHS if name in own}
    if data_root is not None:
        own["FDG_DATA_ROOT"] = str(data_root.absolute())
    return {name: value for name, value in environment.items() if not name.startswith(PREFIX)} | own


def run_environment(environment: Mapping[str, str], folder: Path, threads: int, gpu: str | None) -> dict[str, str]:
    """Return the environment of the run in ``folder``, from that of all runs.

    Each of its sites computes with ``threads`` threads, unless the user has set a number, and sees only ``gpu``. What
    the run needs to be resumed is kept in its folder ``state``.
    """
    own = {MARK: str(folder), "PWD": str(folder), STATE_VARIABLE: str(folder / STATE)}
    if gpu is not None:
        # Not FLARE's -gpu: it counts the GPUs of the whole machine, and keeps a site's process only if the GPU's
        # number is repeated for each site.
        own |= {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "FDG_DEVICE": "cuda"}
    return {THREADS: str(threads), **environment, **own}
