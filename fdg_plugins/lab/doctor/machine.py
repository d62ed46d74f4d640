# SPDX-License-Identifier: Apache-2.0
"""Is this machine ready for a run: software, GPUs, cores, memory, disks, set-up; and how to start one here.

>>> recommend(cores=2, gpus=(), sites=4, processes=8).command
'FDG_THREADS=1 FDG_WORKERS=0 nvflare simulator jobs/pacs_fedomg -t 4'
>>> recommend(cores=16, gpus=("0",), sites=4, processes=8).command
'FDG_THREADS=4 FDG_WORKERS=3 nvflare simulator jobs/pacs_fedomg -gpu 0,0,0,0'
"""

import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import distributions, requires, version
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from packaging.requirements import Requirement

from fdg_plugins.data import PACS
from fdg_plugins.data.own_files import own_data
from fdg_plugins.data.stand_in import cache_folder
from fdg_plugins.errors import FDGError
from fdg_plugins.lab.doctor.finding import Finding, Status, findings_of, gibibytes, ok, problem, warning
from fdg_plugins.lab.doctor.setup import check_data, check_own_data, check_precision, check_variables, check_weights
from fdg_plugins.lab.sweep.machine import available_cores, sites_at_once, visible_gpus
from fdg_plugins.storage import named_path

PACKAGE = "fdg-plugins"
NAMED = ("nvflare", "torch", "torchvision")  # shown even if all is well
CGROUP = Path("/sys/fs/cgroup")  # in a container, that of the container
JOB = "jobs/pacs_fedomg"
MOST_WORKERS = 4

# Measured, resident: 0.85 GiB with torch and FLARE loaded, 1.5 GiB after steps of ResNet-18, 224 px, batch 16.
MEMORY_PER_SITE = 3 * 2**29
MEMORY_OF_SERVER = 2**30
LITTLE_DISK = 2 * 2**30
NO_DISK = 2**28  # a run keeps its models several times over


class Advice(NamedTuple):
    """How to start a simulation.

    ``alive`` is the number of sites that have a process at the same time; ``threads`` and ``workers`` are the values
    of ``FDG_THREADS`` and ``FDG_WORKERS`` for each of them; ``gpus`` names a GPU for each, and is empty on the CPU.
    """

    alive: int
    threads: int
    workers: int
    gpus: tuple[str, ...]

    @property
    def command(self) -> str:
        """The bare command with its options and variables; never ``-n``, which would rename the sites."""
        where = f"-gpu {','.join(self.gpus)}" if self.gpus else f"-t {self.alive}"
        return f"FDG_THREADS={self.threads} FDG_WORKERS={self.workers} nvflare simulator {JOB} {where}"


def examine(environment: Mapping[str, str], data: Path | None) -> tuple[tuple[Finding, ...], int, str]:
    """Return what is found on this machine, and the number of sites of a simulation with the command that starts it.

    ``data``: the user's own images, or the file that describes them, whose domains are the sites; else those of PACS.
    """
    try:
        sites = len(PACS.domains if data is None else own_data(data).dataset.domains)
    except FDGError:  # which is a finding
        sites = len(PACS.domains)
    cores, memory, gpus = read_cores(), read_memory(), visible_gpus(environment)
    fitting = max(0, (memory - MEMORY_OF_SERVER) // MEMORY_PER_SITE)
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "versions": check_versions,
        "gpu": lambda: check_gpus(gpus),
        "precision": lambda: [check_precision(environment)],
        "cores": lambda: check_cores(cores, memory, fitting, sites),
        "disk": lambda: check_disks(cache_folder(named_path("FDG_CACHE", environment))),
        "data": lambda: check_data(environment) if data is None else check_own_data(data),
        "weights": lambda: [check_weights(environment)],
        "variables": lambda: check_variables(environment),
    }
    # No job folder is about the user's own images.
    own = None if data is None else f"fdg run fedomg --dataset {shlex.quote(str(data))}"
    return findings_of(checks), sites, own or recommend(cores, gpus, sites, fitting).command


def recommend(cores: int, gpus: Sequence[str], sites: int, processes: int) -> Advice:
    """Return how to simulate ``sites`` sites with ``cores`` cores and these GPUs, as ``-gpu`` takes their ids.

    ``processes``: how many sites' processes the memory holds. All sites stay alive while there are at most two per core
    and the memory holds them; else as many as there are cores, and memory for. Those alive share the cores.
    """
    alive = sites_at_once(sites, cores, max(1, processes))
    workers = min(MOST_WORKERS, max(0, cores // alive - 1)) if gpus else 0
    return Advice(alive, max(1, cores // alive), workers, tuple(islice(cycle(gpus), alive)))


def check_versions() -> Iterator[Finding]:
    """Yield Python, this package and what it needs; a problem for what is missing or not in the supported range."""
    yield ok("python", platform.python_version())  # an older one than pip takes cannot even import this module
    yield ok(PACKAGE, version(PACKAGE))
    for requirement in map(Requirement, requires(PACKAGE) or []):
        if requirement.marker is None or requirement.marker.evaluate():
            found = check_requirement(requirement)
            if found.status is not Status.OK or found.check in NAMED:
                yield found


def check_requirement(requirement: Requirement) -> Finding:
    """Return whether a package is installed in a version that is supported."""
    name, wanted = requirement.name, requirement.specifier
    found = next((one.version for one in distributions(name=name)), None)
    if found is None or not wanted.contains(found, prereleases=True):
        return problem(name, f"{found or 'not installed'}, expected {wanted or 'any version'}")
    return ok(name, f"{found} ({wanted})")


def check_gpus(gpus: Sequence[str]) -> Iterator[Finding]:
    """Yield each GPU that torch can use; if there is none, what torch is built for."""
    built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is built without CUDA"
    for number, gpu in enumerate(gpus):
        free, total = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_name(number)
        yield ok(f"gpu {gpu}", f"{name}, {gibibytes(free)} free of {gibibytes(total)}, {built}")
    if not gpus:
        driver = Path("/dev/nvidiactl").exists()
        text = "the driver is there, but torch can use none" if driver else "none, sites compute on the CPU"
        yield (warning if driver else ok)("gpu", f"{text}; {built}")


def read_cores() -> int:
    """Return how many cores this process may use at a time, within the limit of its container."""
    quota = _limit("cpu.max")
    return max(1, min(available_cores(), quota[0] // quota[1])) if quota else available_cores()


def read_memory() -> int:
    """Return the bytes of memory that a run can take, within the limit of this container."""
    return min(psutil.virtual_memory().available, *_limit("memory.max") or [2**63])


def _limit(file: str) -> list[int]:
    """Return the numbers of a limit of this container (control groups, version 2); none if it sets no limit."""
    try:
        words = (CGROUP / file).read_text(encoding="utf-8").split()
    except OSError:
        return []
    return [int(word) for word in words] if all(map(str.isdecimal, words)) else []


def check_cores(usable: int, memory: int, fitting: int, sites: int) -> Iterator[Finding]:
    """Yield how many cores can be used, and for how many sites that are alive at the same time there is memory."""
    limited = "; the container allows no more at a time, which torch does not know: set FDG_THREADS"
    judge = warning if usable < available_cores() else ok
    yield judge("cores", f"{usable} usable of {os.cpu_count()}{limited if judge is warning else ''}")
    judge = problem if memory < 2 * MEMORY_OF_SERVER else warning if fitting < sites else ok
    text = f"{gibibytes(memory)} free: enough for {fitting} sites at a time with ResNet-18 at 224 pixels"
    yield judge("memory", text)


def check_disks(cache: Path) -> Iterator[Finding]:
    """Yield what is free where a run writes: the cache, temporary files, and the folder it is started from."""
    places = {"cache": cache, "temporary files": Path(tempfile.gettempdir()), "working folder": Path.cwd()}
    for name, place in places.items():
        there = next(filter(Path.exists, (place, *place.absolute().parents)))
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            yield problem(f"disk, {name}", f"{there} cannot be written to, expected a folder of this user's")
            continue
        free = shutil.disk_usage(there).free
        judge = problem if free < NO_DISK else warning if free < LITTLE_DISK else ok
        yield judge(f"disk, {name}", f"{gibibytes(free)} free in {place}")
