# SPDX-License-Identifier: Apache-2.0
"""What the machine has for this process: cores, memory, disks and ports, within the limits of its control group."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from fdg_plugins.lab.doctor.finding import Finding, gibibytes, ok, problem, warning

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")

# Measured, resident: 0.85 GiB with torch and FLARE loaded, 1.5 GiB after steps of ResNet-18, 224 px, batch 16.
MEMORY_PER_SITE = 3 * 2**29
MEMORY_OF_SERVER = 2**30
LEAST_MEMORY = 2 * 2**30  # the server and one site with hardly more than torch and FLARE
LITTLE_DISK = 2 * 2**30
NO_DISK = 2**28  # a run keeps its models several times over

# fed_learn_port and admin_port, as in poc/project.yml and FLARE's own templates.
PORTS = (8002, 8003)


class Cores(NamedTuple):
    """Cores of the machine, those this process may run on, and how many of them it may use at a time (None: all)."""

    machine: int
    allowed: int
    quota: float | None = None

    @property
    def usable(self) -> int:
        """How many threads can run at the same time, at least one."""
        return max(1, int(min(self.allowed, self.allowed if self.quota is None else self.quota)))


class Memory(NamedTuple):
    """Bytes of memory of the machine, those free, and the limit of the control group (None: there is none)."""

    total: int
    available: int
    limit: int | None = None

    @property
    def allowed(self) -> int:
        """Bytes that this process may have, all of the machine's or the control group's limit."""
        return self.total if self.limit is None else min(self.total, self.limit)

    @property
    def usable(self) -> int:
        """Bytes that a run can take."""
        return min(self.available, self.allowed)

    @property
    def processes(self) -> int:
        """How many sites' processes fit beside the server's."""
        return max(0, (self.usable - MEMORY_OF_SERVER) // MEMORY_PER_SITE)


def read_cores() -> Cores:
    """Return the cores of this process."""
    # Not every system that Python runs on can bind a process to cores.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Cores(os.cpu_count() or allowed, allowed, cpu_quota())


def read_memory() -> Memory:
    """Return the memory of this process."""
    memory = psutil.virtual_memory()
    return Memory(memory.total, memory.available, memory_limit())


def cpu_quota(root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> float | None:
    """Return how many cores the control group may use at a time, the smallest of all groups above; None: no limit."""
    limits = _limits("cpu", ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"), root, membership)
    return min((int(words[0]) / int(words[1]) for words in limits if len(words) == 2), default=None)


def memory_limit(root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int | None:
    """Return the bytes that the control group may have, the smallest limit of all groups above; None: no limit."""
    limits = _limits("memory", ("memory.max", "memory.limit_in_bytes"), root, membership)
    return min((int(words[0]) for words in limits), default=None)


def _limits(controller: str, files: Iterable[str], root: Path, membership: Path) -> Iterator[list[str]]:
    """Yield the numbers in ``files`` of this process's control group and of each above it, for either version.

    A group has the files of one version alone. One that sets no limit says ``max`` or ``-1``, and is left out.
    """
    for group in _groups(controller, root, membership):
        words = [word for file in files for word in _text(group / file).split()]
        if words and all(map(str.isdecimal, words)):
            yield words


def _groups(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """Yield the folder of this process's control group, and of each above it.

    In a container the path may be that of the host, and only the last of these be there.
    """
    for line in _text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            yield from _upwards(root / controllers, path)


def _upwards(base: Path, path: str) -> Iterator[Path]:
    """Yield the folder at ``path`` below ``base``, and those above it up to ``base``."""
    folder = base / path.strip("/")
    return (group for group in (folder, *folder.parents) if group.is_relative_to(base))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()  # a group may have any name
    except OSError:
        return ""  # another version of control groups, or none


def check_cores(cores: Cores) -> Finding:
    """Return how many cores can be used; a warning if a limit lies below what torch sees."""
    text = f"{cores.usable} usable of {cores.machine}"
    if cores.allowed < cores.machine:
        text += f"; this process is bound to {cores.allowed}"
    if cores.quota is None or cores.quota >= cores.allowed:
        return ok("cores", text)
    limit = f"the control group allows {cores.quota:g} at a time, which torch does not know: set FDG_THREADS"
    return warning("cores", f"{text}; {limit}")


def check_memory(memory: Memory, sites: int) -> Finding:
    """Return how much memory there is for ``sites`` sites that are alive at the same time."""
    text = f"{gibibytes(memory.usable)} free of {gibibytes(memory.total)}"
    if memory.allowed < memory.total:
        text += f", control group's limit {gibibytes(memory.allowed)}"
    text += f": enough for {memory.processes} sites at a time with ResNet-18 at 224 pixels"
    if memory.usable < LEAST_MEMORY:
        return problem("memory", f"{text}, expected {gibibytes(LEAST_MEMORY)} at least")
    return (ok if memory.processes >= sites else warning)("memory", text)


def check_disks(cache: Path) -> Iterator[Finding]:
    """Yield what is free where a run writes: the cache, temporary files, and the folder it is started from."""
    places = {"cache": cache, "temporary files": Path(tempfile.gettempdir()), "working folder": Path.cwd()}
    return (check_disk(f"disk, {name}", place) for name, place in places.items())


def check_disk(check: str, place: Path) -> Finding:
    """Return what is free at ``place``, or where it will be made; a problem if nothing can be written there."""
    there = next(filter(Path.exists, (place, *place.absolute().parents)))
    if not _can_be_written(there):
        return problem(check, f"{there} cannot be written to, expected a folder of this user's")
    free = shutil.disk_usage(there).free
    judge = problem if free < NO_DISK else warning if free < LITTLE_DISK else ok
    return judge(check, f"{gibibytes(free)} free in {place}")


def _can_be_written(place: Path) -> bool:
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def check_ports(ports: Iterable[int] = PORTS) -> Finding:
    """Return whether the ports of a provisioned server are free; the simulator does not use them."""
    taken = [port for port in ports if not _is_free(port)]
    names = ", ".join(map(str, taken or ports))
    if taken:
        return warning("ports", f"{names} taken: does a federation run here? make poc needs them")
    return ok("ports", f"{names} free, for make poc")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("", port)).close()  # also right after the end of a port's last connections, as FLARE can
    except OSError:
        return False
    return True
