# SPDX-License-Identifier: Apache-2.0
"""The resources available to this process: cores, memory, disks and ports, within the limits of its control group."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from fdg_plugins.doctor.finding import Finding, Status, gibibytes

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
CFS = ("quota", "period")

# Measured, resident: 0.85 GiB with torch and FLARE loaded, 1.5 GiB after steps of ResNet-18, 224 px, batch 16.
MEMORY_PER_SITE = 3 * 2**29
MEMORY_OF_SERVER = 2**30
LEAST_MEMORY = 2 * 2**30  # the server and one site with little more than torch and FLARE
LITTLE_DISK = 2 * 2**30
NO_DISK = 2**28  # a run keeps its models several times over

# fed_learn_port and admin_port, as in poc/project.yml and FLARE's own templates.
PORTS = (8002, 8003)


@dataclass(frozen=True)
class Cores:
    """Cores of the machine, those this process may run on, and how many of them it may use at a time (None: all)."""

    machine: int
    allowed: int
    quota: float | None = None

    @property
    def usable(self) -> int:
        """The number of threads that can run at the same time, at least one."""
        return max(1, min(self.allowed, int(self.quota) if self.quota is not None else self.allowed))


@dataclass(frozen=True)
class Memory:
    """Bytes of the machine's memory, free bytes, and the limit of the control group (None: no limit)."""

    total: int
    available: int
    limit: int | None = None

    @property
    def usable(self) -> int:
        """The bytes that a run can use."""
        return self.available if self.limit is None else min(self.available, self.limit)

    @property
    def processes(self) -> int:
        """The number of sites' processes that fit in addition to the server's."""
        return max(0, (self.usable - MEMORY_OF_SERVER) // MEMORY_PER_SITE)


def read_cores() -> Cores:
    """Return the cores of this process."""
    # Not every system on which Python runs can bind a process to cores.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Cores(os.cpu_count() or allowed, allowed, cpu_quota())


def read_memory() -> Memory:
    """Return the memory of this process."""
    memory = psutil.virtual_memory()
    return Memory(memory.total, memory.available, memory_limit())


def cpu_quota(root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> float | None:
    """Return how many cores the control group may use at a time, the minimum over all its ancestors; None: no limit."""
    quotas = []
    for folder in _groups("cpu", root, membership):
        words = _text(folder / "cpu.max").split()  # version 2 of control groups
        quota, period = words if len(words) == 2 else (_text(folder / f"cpu.cfs_{name}_us") for name in CFS)
        if quota.isdecimal() and period.isdecimal():
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit(root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int | None:
    """Return the control group's memory limit in bytes, the minimum over all its ancestors; None: no limit."""
    limits = []
    for folder in _groups("memory", root, membership):
        limit = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
        if limit.isdecimal():
            limits.append(int(limit))
    return min(limits, default=None)


def _groups(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """Yield the folders of this process's control group and of its ancestors, for either version."""
    for line in _text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            base = root / controllers
            folder = base / path.strip("/")
            yield folder
            # In a container, the path may be that of the host, and only the last of these may exist.
            yield from (above for above in folder.parents if above.is_relative_to(base))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""  # another version of control groups, or none


def check_cores(cores: Cores) -> Finding:
    """Return how many cores can be used; a warning if a limit is below what torch sees."""
    text = f"{cores.usable} usable of {cores.machine}"
    if cores.allowed < cores.machine:
        text += f"; this process is bound to {cores.allowed}"
    if cores.quota is not None and cores.quota < cores.allowed:
        text += f"; the control group allows {cores.quota:g} at a time, which torch does not know: set FDG_THREADS"
        return Finding("cores", Status.WARNING, text)
    return Finding("cores", Status.OK, text)


def check_memory(memory: Memory, sites: int) -> Finding:
    """Return how much memory there is for ``sites`` sites that are alive at the same time."""
    text = f"{gibibytes(memory.usable)} free of {gibibytes(memory.total)}"
    if memory.limit is not None and memory.limit < memory.total:
        text += f", control group's limit {gibibytes(memory.limit)}"
    text += f": enough for {memory.processes} sites at a time with ResNet-18 at 224 pixels"
    if memory.usable < LEAST_MEMORY:
        return Finding("memory", Status.PROBLEM, f"{text}, expected {gibibytes(LEAST_MEMORY)} at least")
    return Finding("memory", Status.OK if memory.processes >= sites else Status.WARNING, text)


def check_disks(cache: Path) -> Iterator[Finding]:
    """Yield the free space where a run writes: the cache, temporary files, and the working folder."""
    places = {"cache": cache, "temporary files": Path(tempfile.gettempdir()), "working folder": Path.cwd()}
    for name, place in places.items():
        yield check_disk(f"disk, {name}", place)


def check_disk(check: str, place: Path) -> Finding:
    """Return the free space at ``place``, existing or not; a problem if nothing can be written there."""
    there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding(check, Status.PROBLEM, f"{there} cannot be written to, expected a folder of this user's")
    free = shutil.disk_usage(there).free
    status = Status.PROBLEM if free < NO_DISK else Status.WARNING if free < LITTLE_DISK else Status.OK
    return Finding(check, status, f"{gibibytes(free)} free in {place}")


def check_ports(ports: Iterable[int] = PORTS) -> Finding:
    """Return whether the ports of a provisioned server are free; the simulator does not use them."""
    taken = [port for port in ports if not _is_free(port)]
    names = ", ".join(str(port) for port in taken or ports)
    if taken:
        return Finding("ports", Status.WARNING, f"{names} taken: does a federation run here? make poc needs them")
    return Finding("ports", Status.OK, f"{names} free, for make poc")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # FLARE can listen on a port whose last connections have just been closed.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
