# SPDX-License-Identifier: Apache-2.0
"""How to start FLARE's simulator on a machine: a pure function of the machine's resources."""

from collections.abc import Sequence
from dataclasses import dataclass

JOB = "jobs/pacs_fedomg"
SITES_PER_CORE = 2
MOST_WORKERS = 4


@dataclass(frozen=True)
class Advice:
    """The recommended command, and the reasons.

    ``alive`` is the number of sites that have a process at the same time; ``threads`` and ``workers`` are the values
    of ``FDG_THREADS`` and ``FDG_WORKERS`` for each of them; ``gpus`` names a GPU for each, and is empty on the CPU.
    """

    alive: int
    threads: int
    workers: int
    gpus: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def command(self) -> str:
        """The complete command with its options and variables; never with ``-n``, which would rename the sites."""
        where = f"-gpu {','.join(self.gpus)}" if self.gpus else f"-t {self.alive}"
        return f"FDG_THREADS={self.threads} FDG_WORKERS={self.workers} nvflare simulator {JOB} {where}"


def recommend(cores: int, gpus: Sequence[str], sites: int, processes: int) -> Advice:
    """Return how to simulate ``sites`` sites.

    Args:
        cores: CPU cores that may be used, at least 1.
        gpus: the ids of the GPUs for ``-gpu``; empty: there are none.
        sites: sites of the job, at least 1.
        processes: the number of sites' processes that fit into memory.

    All sites stay alive if there are at most two per core and they fit into memory; else, as many as there are cores,
    and as fit into memory. Their threads share the cores.
    """
    fitting = max(1, processes)
    alive = sites if sites <= min(SITES_PER_CORE * cores, fitting) else min(cores, sites, fitting)
    threads = max(1, cores // alive)
    workers = min(MOST_WORKERS, max(0, cores // alive - 1)) if gpus else 0
    chosen = tuple(gpus[number % len(gpus)] for number in range(alive)) if gpus else ()
    reasons = (
        "no -n: the sites are those that the job names; -n would call them site-1, site-2, which hold no domain",
        _why_alive(alive, cores, sites, fitting),
        _why_threads(threads, alive, cores),
        _why_workers(workers, bool(gpus)),
        *([_why_gpus(alive, len(gpus))] if gpus else []),
    )
    return Advice(alive, threads, workers, chosen, reasons)


def _why_alive(alive: int, cores: int, sites: int, fitting: int) -> str:
    if alive == sites:
        return f"{_count(sites, 'process', 'processes')}: every site stays alive; fewer would start one for every task"
    limit = (
        f"the memory holds {_count(fitting, 'site', 'sites')} at a time"
        if fitting < min(cores, sites)
        else f"{sites} sites are more than {SITES_PER_CORE} for each of {_count(cores, 'core', 'cores')}"
    )
    return f"{_count(alive, 'process', 'processes')} at a time: {limit}; each task then starts a process of its own"


def _why_threads(threads: int, alive: int, cores: int) -> str:
    shared = f"{_count(alive, 'site', 'sites')} on {_count(cores, 'core', 'cores')}"
    if alive > cores:
        return f"FDG_THREADS={threads}: {shared}; with more, their threads hold each other up"
    return f"FDG_THREADS={threads}: {shared}, divided; the default is one thread per core at every site"


def _why_workers(workers: int, has_gpu: bool) -> str:
    if not has_gpu:
        return "FDG_WORKERS=0: without a GPU the cores are busy training; images are read in between"
    if workers == 0:
        return "FDG_WORKERS=0: no core is left for reading images beside the training"
    return f"FDG_WORKERS={workers}: processes that read images, so that the GPU does not wait for them"


def _why_gpus(alive: int, gpus: int) -> str:
    if alive > gpus:
        return f"-gpu: an entry for each site, so that all stay alive and share {_count(gpus, 'GPU', 'GPUs')}"
    return "-gpu: a GPU for each site"


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
