# SPDX-License-Identifier: Apache-2.0
"""Jobs run by FLARE's commands, in processes of their own, and what the server's log says of their time."""

import json
import os
import re
import select
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from fdg_plugins.lab.sweep.run import MARK, end_processes

BENCHMARKS = Path(__file__).parents[1]
LEAD = "lead@fdg.example"
LONGEST_S = 1800  # of a command without a word, and of a job
QUIET_S = 300  # far longer than a site trains between two lines of a simulator's log
WORKSPACE = "workspace"
_TIME = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) - ")


class SilentError(RuntimeError):
    """A command printed nothing for so long that it hangs."""


class Run(NamedTuple):
    """A job that ended well: seconds from the command, or the submission, to the end, and the server's log."""

    seconds: float
    log: str


def simulate(job: Path, threads: int, settings: Mapping[str, str] | None = None) -> Run:
    """Run ``nvflare simulator`` on a job, in the job's folder; ``settings`` are ``FDG_*`` variables.

    A simulation that falls silent is begun anew, once: FLARE's simulator can lose a site's process while it starts,
    and waits for it for good. Raises ``RuntimeError``, with the end of what it printed, if it does not end well: its
    time would mean nothing.
    """
    folder = job.parent / WORKSPACE
    command = [str(Path(sys.executable).with_name("nvflare")), "simulator", job.name, "-w", WORKSPACE]
    command += ["-t", str(threads)]
    for may_fail in (True, False):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            seconds = run_command(command, job.parent, settings, QUIET_S)
            break
        except SilentError:
            if not may_fail:
                raise
    return Run(seconds, (folder / "server" / "log.txt").read_text(errors="replace"))


def run_command(
    command: list[str], folder: Path, settings: Mapping[str, str] | None = None, quiet_s: float = LONGEST_S
) -> float:
    """Return the seconds of a command in ``folder``; raise ``RuntimeError`` if it does not end well.

    Raises ``SilentError`` if it prints nothing for ``quiet_s`` seconds; all its processes are ended before.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**environment(settings), MARK: str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with process:
        printed = _read_to_end(process, quiet_s)
        if printed is None:
            end_processes(folder)
            raise SilentError(f"{' '.join(command)} printed nothing for {quiet_s:g} s, expected its end.")
    seconds = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}, expected 0:\n{printed[-3000:]}")
    return seconds


def _read_to_end(process: subprocess.Popen[bytes], quiet_s: float) -> str | None:
    """Return all that a process prints; None once it has printed nothing for ``quiet_s`` seconds."""
    assert process.stdout is not None
    printed = bytearray()
    while select.select([process.stdout], [], [], quiet_s)[0]:
        part = os.read(process.stdout.fileno(), 65_536)
        if not part:
            return printed.decode(errors="replace")
        printed += part
    return None


def environment(settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment with no ``FDG_*`` variables but ``settings``; ``echo_parts`` can be imported
    in it."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("FDG_")}
    paths = [str(BENCHMARKS), *filter(None, [own.get("PYTHONPATH")])]
    return {**own, "PYTHONPATH": os.pathsep.join(paths), **(settings or {})}


class Federation:
    """A provisioned federation on this machine: separate processes for server and sites, TLS between them."""

    def __init__(self, folder: Path, session: Session) -> None:
        self.folder = folder
        self.session = session

    def run(self, job: Path) -> Run:
        """Run a job without code of its own; raise ``RuntimeError`` if it does not end well."""
        started = time.perf_counter()
        job_id = self.session.submit_job(str(job))
        meta_file = self.folder / "server" / "jobs-storage" / job_id / "meta"
        log_file = self.folder / "server" / job_id / "log.txt"
        log, status = "", ""
        while not status.startswith("FINISHED"):
            if time.perf_counter() - started > LONGEST_S:
                raise RuntimeError(f"job {job.name} is {status} after {LONGEST_S} s, expected its end.")
            time.sleep(0.2)
            with suppress(OSError):
                log = log_file.read_text(errors="replace") or log  # the folder goes with the job
            with suppress(OSError, ValueError):  # the server rewrites it in place
                status = str(json.loads(meta_file.read_text())["status"])
        if status != "FINISHED:COMPLETED":
            raise RuntimeError(f"job {job.name} is {status}, expected FINISHED:COMPLETED:\n{log[-3000:]}")
        return Run(time.perf_counter() - started, log)

    def allow_job(self, job: Path) -> None:
        """Let every participant build the components that the job names, FLARE's own too."""
        configs = [json.loads(file.read_text()) for file in job.glob("*/config/*.json")]
        self.allow(*sorted({path for config in configs for path in _paths(config)}))

    def allow(self, *paths: str) -> None:
        """Let every participant build these components too; FLARE reads the list at the start of each job."""
        for file in self.folder.glob("*/local/resources.json"):
            content = json.loads(file.read_text())
            content["class_allow_list"] += paths
            file.write_text(json.dumps(content))


def _paths(config: Any) -> Iterator[str]:
    """Yield the class paths in a part of a job's config."""
    parts = config.values() if isinstance(config, dict) else config if isinstance(config, list) else ()
    if isinstance(config, dict) and isinstance(config.get("path"), str):
        yield config["path"]
    for part in parts:
        yield from _paths(part)


@contextmanager
def federation(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Federation]:
    """Start ``fdg poc``'s federation in ``folder``; in the end it is stopped."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1] - 1)  # people use the next one
    folder.mkdir()
    control = [str(Path(sys.executable).with_name("fdg")), "poc"]
    try:
        run_command([*control, "start", str(folder), "--port", port], folder.parent, settings)
        session = new_secure_session(LEAD, str(folder / LEAD), timeout=60.0)
        try:
            yield Federation(folder, session)
        finally:
            session.close()
    finally:
        run_command([*control, "stop", str(folder)], folder.parent, settings)


def write_job(folder: Path, sites: list[str], server: Mapping[str, Any], site: Mapping[str, Any]) -> Path:
    """Write a job of two apps, whose configs are ``server`` and ``site``, as ``folder``; return its path."""
    apps = {"app_server": ("config_fed_server.json", server), "app_site": ("config_fed_client.json", site)}
    for app, (name, config) in apps.items():
        path = folder / app / "config" / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"format_version": 2, **config}))
    deploy_map = {"app_server": ["server"], "app_site": sites}
    meta = {"name": folder.name, "resource_spec": {}, "min_clients": len(sites), "deploy_map": deploy_map}
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def without_custom(job: Path) -> Path:
    """Take the note-only ``custom`` folders off a job, which a federation takes for code; return the job's path."""
    for folder in job.glob("*/custom"):
        shutil.rmtree(folder)
    return job


def with_custom(job: Path) -> Path:
    """Give every app of a job an empty ``custom`` folder, for which FLARE's simulator builds any component."""
    for folder in job.glob("*/config"):
        (folder.parent / "custom").mkdir(exist_ok=True)
    return job


def times(log: str, pattern: str) -> list[float]:
    """Return the times, in seconds since the epoch, of a log's lines in which ``pattern`` is found, in their order."""
    found = re.compile(pattern)
    stamps = (_TIME.match(line) for line in log.splitlines() if found.search(line))
    return [datetime.fromisoformat(stamp[1]).timestamp() + int(stamp[2]) / 1000 for stamp in stamps if stamp]


def interval(log: str, pattern: str, skipped: int = 2) -> float:
    """Return the median seconds between lines that match, without the first ``skipped`` intervals.

    Raises ``RuntimeError`` for a log with too few such lines.
    """
    at = times(log, pattern)
    between = [later - earlier for earlier, later in pairwise(at)][skipped:]
    if not between:
        raise RuntimeError(f"the server's log has {len(at)} lines with {pattern!r}, expected more than {skipped + 1}.")
    return statistics.median(between)
