# SPDX-License-Identifier: Apache-2.0
"""What the processes and folders of a federation on this machine hold at one moment. Linux only, as memory is PSS."""

import json
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import psutil

from fdg_plugins.lab.poc.processes import belongs
from fdg_plugins.lab.sweep.run import processes_below
from soak_parts.rows import DiskRow, ProcessRow

ROLES = {
    "nvflare.private.fed.app.server.server_train": "parent",
    "nvflare.private.fed.app.client.client_train": "parent",
    "nvflare.private.fed.app.server.runner_process": "job",
    "nvflare.private.fed.app.client.worker_process": "job",
    "--multiprocessing-fork": "training",
    "submit": "submit",
}
TEMPORARY = "temporary"
"""The folder for temporary files of all participants, sampled like that of a participant."""

_NUMBERS = np.random.default_rng(0).random(200_000)
_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)


def do_work() -> tuple[float, float]:
    """Do the same work each time, a few hundredths of a second; return its processor seconds and its seconds."""
    began, cpu_began = time.perf_counter(), time.thread_time()
    np.sort(_NUMBERS)
    json.loads(json.dumps(_NUMBERS[:20_000].tolist()))
    return time.thread_time() - cpu_began, time.perf_counter() - began


def sample_processes(folder: Path, names: Iterable[str], round_number: int) -> Iterator[ProcessRow]:
    """Yield a row for each Python process of the participants ``names`` of the federation in ``folder``."""
    kits = {name: folder / name for name in names}
    for process in processes_below(folder):
        owner = next((name for name, kit in kits.items() if belongs(process, kit)), None)
        try:
            role = role_of(process.cmdline())
            if owner is not None and role is not None:
                yield _row(process, round_number, owner, role)
        except (psutil.Error, OSError):
            continue  # it has ended meanwhile


def role_of(command: Iterable[str]) -> str | None:
    """Return the role of a process with this command line; None if it has none, such as FLARE's daemon."""
    return next((ROLES[word] for word in command if word in ROLES), None)


def _row(process: psutil.Process, round_number: int, owner: str, role: str) -> ProcessRow:
    found = _PSS.search(Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii"))
    if found is None:  # it has no memory any more
        raise psutil.NoSuchProcess(process.pid)
    times = process.cpu_times()
    pss = int(found.group(1)) * 1024
    return ProcessRow(
        round_number, owner, role, process.pid, pss, process.num_fds(), process.num_threads(), times.user + times.system
    )


def sample_disk(folder: Path, participant: str, round_number: int) -> DiskRow:
    """Return the row of one participant, whose folder is ``folder / participant``.

    A file with several names counts once, since the checkpoint of the round before is a second name.
    """
    sizes: Counter[str] = Counter()
    seen = set()
    for path in _files(folder / participant):
        try:
            status = path.lstat()
        except OSError:
            continue  # removed meanwhile
        if stat.S_ISLNK(status.st_mode) or (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        sizes[kind_of(path)] += status.st_size
    return DiskRow(
        round_number,
        participant,
        **{kind: sizes[kind] for kind in ("logs", "audit", "events", "record", "rest")},
        number=len(seen),
    )


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that exists; folders that are removed meanwhile are left out."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def kind_of(path: Path) -> str:
    """Return the kind of a file by its name."""
    if "audit" in path.name:
        return "audit"
    if path.name.startswith("log") or path.suffix == ".log":
        return "logs"
    if path.name.startswith("events.out"):
        return "events"
    return "record" if path.name.startswith(("results.json", "checkpoint")) else "rest"
