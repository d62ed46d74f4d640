# SPDX-License-Identifier: Apache-2.0
"""How to start FLARE's simulator on a machine: a pure function of what the machine has.

>>> recommend(cores=2, gpus=(), sites=4, processes=8).command
'FDG_THREADS=1 FDG_WORKERS=0 nvflare simulator jobs/pacs_fedomg -t 4'
>>> recommend(cores=16, gpus=("0",), sites=4, processes=8).command
'FDG_THREADS=4 FDG_WORKERS=3 nvflare simulator jobs/pacs_fedomg -gpu 0,0,0,0'
"""

import shlex
from collections.abc import Sequence
from itertools import cycle, islice
from typing import NamedTuple

from fdg_plugins.lab.engine.threads import SITES_PER_CORE, sites_at_once
from fdg_plugins.values import counted

JOB = "jobs/pacs_fedomg"
MOST_WORKERS = 4


class Advice(NamedTuple):
    """What to type, and why.

    ``alive`` is the number of sites that have a process at the same time; ``threads`` and ``workers`` are the values
    of ``FDG_THREADS`` and ``FDG_WORKERS`` for each of them; ``gpus`` names a GPU for each, and is empty on the CPU.
    ``data`` is the folder or file of the user's own images, if they are asked about.
    """

    alive: int
    threads: int
    workers: int
    gpus: tuple[str, ...]
    reasons: tuple[str, ...]
    data: str | None = None

    @property
    def command(self) -> str:
        """The bare command with its options and variables; never ``-n``, which would rename the sites.

        No job folder is about images of the user's own (``data``): ``fdg run`` makes their job.
        """
        if self.data is not None:
            return f"fdg run fedomg --data {shlex.quote(self.data)}"
        where = f"-gpu {','.join(self.gpus)}" if self.gpus else f"-t {self.alive}"
        return f"FDG_THREADS={self.threads} FDG_WORKERS={self.workers} nvflare simulator {JOB} {where}"


def recommend(cores: int, gpus: Sequence[str], sites: int, processes: int) -> Advice:
    """Return how to simulate ``sites`` sites.

    Args:
        cores: CPU cores that may be used, at least 1.
        gpus: the ids of the GPUs, as ``-gpu`` takes them; empty: there are none.
        sites: sites of the job, at least 1.
        processes: how many sites' processes the memory holds.

    All sites stay alive while there are at most two per core and the memory holds them; else as many as there are
    cores, and memory for. The threads of those alive share the cores.
    """
    fitting = max(1, processes)
    alive = sites_at_once(sites, cores, fitting)
    threads = max(1, cores // alive)
    workers = min(MOST_WORKERS, max(0, cores // alive - 1)) if gpus else 0
    reasons = (
        "no -n: the sites are those that the job names; -n would call them site-1, site-2, which hold no domain",
        f"{counted(alive, 'process', 'processes')} at a time: {_why_alive(alive, cores, sites, fitting)}",
        f"FDG_THREADS={threads}: {counted(alive, 'site')} on {counted(cores, 'core')}; {_why_threads(alive, cores)}",
        f"FDG_WORKERS={workers}: {_why_workers(workers, bool(gpus))}",
        *([f"-gpu: an entry for each site, so that all stay alive; of {counted(len(gpus), 'GPU')}"] if gpus else []),
    )
    chosen = tuple(islice(cycle(gpus), alive))
    return Advice(alive, threads, workers, chosen, reasons)


def _why_alive(alive: int, cores: int, sites: int, fitting: int) -> str:
    if alive == sites:
        return "every site stays alive; fewer would start one for every task"
    few = f"{sites} sites are more than {SITES_PER_CORE} for each of {counted(cores, 'core')}"
    limit = f"the memory holds {counted(fitting, 'site')} at a time" if fitting < min(cores, sites) else few
    return f"{limit}; each task then starts a process of its own"


def _why_threads(alive: int, cores: int) -> str:
    if alive > cores:
        return "with more, their threads hold each other up"
    return "divided; the default is one per core at each"


def _why_workers(workers: int, has_gpu: bool) -> str:
    if not has_gpu:
        return "without a GPU the cores are busy training; images are read in between"
    if workers == 0:
        return "no core is left for reading images beside the training"
    return "processes that read images, so that the GPU does not wait for them"
