# SPDX-License-Identifier: Apache-2.0
"""How many runs a machine carries at once, and what each is started with: threads, GPU, environment."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX
from fdg_plugins.storage import user_path
from fdg_plugins.sweep.processes import MARK

_PATHS = ("FDG_DATA_ROOT", "FDG_CACHE", "FDG_PRETRAINED_FILE")
_GPU = re.compile(r"\d+|(GPU|MIG)-[A-Za-z0-9-]+")


@dataclass(frozen=True)
class Machine:
    """What the runs share: ``gpus`` has one entry per run at a time, None for a run that is given no GPU of its own.

    ``threads`` is the number of sites that compute at a time in a run, FLARE's ``-t``; None for all of them.
    """

    cores: int
    gpus: tuple[str | None, ...]
    threads: int | None = None

    @property
    def parallel(self) -> int:
        """How many runs there are at a time."""
        return len(self.gpus)

    def threads_of(self, sites: int) -> int:
        """Return how many of ``sites`` sites compute at a time."""
        return sites if self.threads is None else min(self.threads, sites)

    def arithmetic_threads(self, sites: int) -> int:
        """Return the threads of arithmetic for each site, so that all together are no more than the cores."""
        return max(1, self.cores // (self.parallel * self.threads_of(sites)))


def find_machine(
    sites: int, parallel: int | None, gpus: str | None, threads: int | None, environment: Mapping[str, str]
) -> Machine:
    """Return how runs of at most ``sites`` sites are carried out, from what the user asked for (None: nothing).

    A run that is one process, such as a centralised reference, counts as one of one site.

    Without a word, one run goes on each GPU that torch finds; without any, as many as leave each site a core, at least
    one. All sites of a run compute at once: with fewer, FLARE starts a process anew for each site's every task, which
    costs more (seconds each) than sharing cores does. Raises ``SettingsError`` for what does not fit together.
    """
    if gpus is not None and parallel is not None:
        raise SettingsError(
            "--gpus and --parallel exclude each other: one run at a time goes on each GPU named, and --gpus 0,0 lets "
            "two share GPU 0."
        )
    cores, found = available_cores(), visible_gpus(environment)
    if gpus is not None:
        named = _read_gpus(gpus)
        if not found:
            raise SettingsError(f"--gpus names {gpus}, but torch finds no CUDA device here, or FDG_DEVICE is cpu.")
        return Machine(cores, named, threads)
    if found:
        return Machine(cores, tuple(found[i % len(found)] for i in range(parallel or len(found))), threads)
    at_once = sites if threads is None else min(threads, sites)
    return Machine(cores, (None,) * (parallel or max(1, cores // at_once)), threads)


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that torch finds, as ``CUDA_VISIBLE_DEVICES`` names them; none where the user wants the CPU."""
    if environment.get("FDG_DEVICE", "").strip() == "cpu" or not torch.cuda.is_available():
        return ()
    count = torch.cuda.device_count()
    named = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return tuple(named[:count] or map(str, range(count)))


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ignored_settings(environment: Mapping[str, str]) -> list[str]:
    """Return the ``FDG_*`` variables that would set something of a run, and that a sweep keeps away from it."""
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in OTHER_VARIABLES)


def machine_environment(environment: Mapping[str, str], data_root: Path | None) -> dict[str, str]:
    """Return what every run has in its environment, from the user's own and the data root named, if one is.

    Of the ``FDG_*`` variables only those that say where and how this machine computes go along. Relative paths are
    made absolute, since each run has a folder of its own.
    """
    kept = {name: value for name, value in environment.items() if not name.startswith(PREFIX)}
    kept |= {name: value for name in OTHER_VARIABLES if (value := environment.get(name, "").strip())}
    for name in _PATHS:
        if name in kept:
            kept[name] = str(user_path(kept[name], environment))
    if data_root is not None:
        kept["FDG_DATA_ROOT"] = str(data_root.absolute())
    return kept


def run_environment(environment: Mapping[str, str], working: Path, threads: int, gpu: str | None) -> dict[str, str]:
    """Return the environment of the run in ``working``, from that of all runs.

    Each of its sites has so many ``threads`` of arithmetic, unless the user has said how many, and sees ``gpu`` alone.
    """
    own = {MARK: str(working), "PWD": str(working)}
    if gpu is not None:
        # Not FLARE's -gpu: that counts the GPUs of the whole machine, and keeps a site's process only if the GPU's
        # number is repeated for each site.
        own |= {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "FDG_DEVICE": "cuda"}
    return {"FDG_THREADS": str(threads), **environment, **own}


def _read_gpus(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not _GPU.fullmatch(name):
            raise SettingsError(f"--gpus names {name!r}, expected numbers of GPUs, or UUIDs, such as 0,1.")
    return names
