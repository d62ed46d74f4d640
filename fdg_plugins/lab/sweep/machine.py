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
from fdg_plugins.lab.sweep.store import STATE
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX
from fdg_plugins.state.folders import VARIABLE as STATE_VARIABLE
from fdg_plugins.storage import user_path

THREADS = "FDG_THREADS"
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

    @property
    def parallel(self) -> int:
        """The number of concurrent runs."""
        return len(self.gpus)

    def threads_of(self, sites: int) -> int:
        """Return how many of ``sites`` sites compute at a time."""
        return _at_once(sites, self.threads)

    def arithmetic_threads(self, sites: int) -> int:
        """Return the arithmetic threads per site, so that all of them together do not exceed the cores."""
        return max(1, self.cores // (self.parallel * self.threads_of(sites)))


def find_machine(
    sites: int, parallel: int | None, gpus: str | None, threads: int | None, environment: Mapping[str, str]
) -> Machine:
    """Return the resources for runs of at most ``sites`` sites, from the user's options (None: not set).

    A run in a single process, such as a centralised reference, counts as a run of one site.

    By default, one run uses each GPU that torch finds; without GPUs, there are as many runs as leave each site a core,
    at least one. All sites of a run compute at once: with fewer, FLARE starts a new process for every task of each
    site, which costs more (seconds each) than sharing cores does. Raises ``SettingsError`` for incompatible options.
    """
    if gpus is not None and parallel is not None:
        raise SettingsError(
            "--gpus and --parallel exclude each other: one run at a time goes on each GPU named, and --gpus 0,0 lets "
            "two share GPU 0."
        )
    cores, found = available_cores(), visible_gpus(environment)
    if gpus is not None:
        return Machine(cores, _read_gpus(gpus, found), threads)
    fitting = max(1, cores // _at_once(sites, threads))
    return Machine(cores, _slots(found, parallel, fitting), threads)


def _at_once(sites: int, threads: int | None) -> int:
    return sites if threads is None else min(threads, sites)


def _slots(found: tuple[str, ...], parallel: int | None, fitting: int) -> tuple[str | None, ...]:
    """Return the GPU of each concurrent run: those ``found`` in turn; None for each if there are none.

    There are ``parallel`` runs; by default (None) one for each GPU, or as many as are ``fitting`` on the cores.
    """
    if found:
        return tuple(islice(cycle(found), parallel or len(found)))
    return (None,) * (parallel or fitting)


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
    kept = {name: value for name, value in environment.items() if not name.startswith(PREFIX)}
    kept |= _own_variables(environment)
    if data_root is not None:
        kept["FDG_DATA_ROOT"] = str(data_root.absolute())
    return kept


def _own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the ``FDG_*`` variables that say where and how to compute, with absolute paths."""
    kept = {name: value for name in OTHER_VARIABLES if (value := environment.get(name, "").strip())}
    return kept | {name: str(user_path(kept[name], environment)) for name in _PATHS if name in kept}


def run_environment(environment: Mapping[str, str], working: Path, threads: int, gpu: str | None) -> dict[str, str]:
    """Return the environment of the run in ``working``, from that of all runs.

    Each of its sites computes with ``threads`` threads, unless the user has set a number, and sees only ``gpu``. What
    the run needs to be resumed is kept in its folder ``state``.
    """
    own = {MARK: str(working), "PWD": str(working), STATE_VARIABLE: str(working / STATE)}
    if gpu is not None:
        # Not FLARE's -gpu: it counts the GPUs of the whole machine, and keeps a site's process only if the GPU's
        # number is repeated for each site.
        own |= {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "FDG_DEVICE": "cuda"}
    return {THREADS: str(threads), **environment, **own}


def _read_gpus(text: str, found: tuple[str, ...]) -> tuple[str, ...]:
    """Return the GPUs that the user names; raise ``SettingsError`` for other text, and if none were ``found``."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not _GPU.fullmatch(name):
            raise SettingsError(f"--gpus names {name!r}, expected numbers of GPUs, or UUIDs, such as 0,1.")
    if not found:
        raise SettingsError(f"--gpus names {text}, but torch finds no CUDA device here, or FDG_DEVICE is cpu.")
    return names
