# SPDX-License-Identifier: Apache-2.0
"""The processes of a federation on one machine: started by FLARE's own scripts, found by a mark, and ended."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.flare.sessions import Server
from fdg_plugins.lab.poc.kits import Project
from fdg_plugins.lab.sweep.run import DAEMON_SCRIPT, MARK, end_processes, processes_below

CONSOLE_LOG = "console.log"
HOST = "127.0.0.1"
LEFT_BY_DAEMON = ("daemon_pid.fl", "pid.fl", "shutdown.fl", "restart.fl")

READY_TIMEOUT_S = 300
LOGIN_TIMEOUT_S = 60.0  # while all participants start on one machine, an answer takes many seconds
GRACE_S = 8


def check_port(port: int) -> None:
    """Raise ``SettingsError`` for a port that something else listens on, at any address of the machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the server does: a connection of the last run that lingers is not an obstacle, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except (OSError, OverflowError) as error:
            raise SettingsError(field="--port", value=port, expected=f"a free one of this machine ({error})") from error


def launch(project: Project, folder: Path) -> None:
    """Start server and sites by FLARE's own ``start.sh``, whose daemon restarts a participant that dies.

    Returns when all are connected; if that fails, every process is ended.
    """
    with contextlib.ExitStack() as if_it_fails:
        if_it_fails.callback(end_all, folder)
        for name in (project.server["name"], *project.sites):
            start_participant(folder, name)
        wait_until_ready(project, folder)
        if_it_fails.pop_all()


@contextlib.contextmanager
def launched(project: Project, folder: Path) -> Iterator[None]:
    """Start server and sites, wait until all of them are connected, and end every process in the end."""
    launch(project, folder)
    try:
        yield
    finally:
        end_all(folder)


def start_participant(folder: Path, name: str) -> None:
    """Start the server or one site by the script of its kit, as its machine does when it is up again."""
    for file in LEFT_BY_DAEMON:
        (folder / name / file).unlink(missing_ok=True)
    with (folder / name / CONSOLE_LOG).open("ab") as log:
        subprocess.run(
            ["bash", str(folder / name / "startup" / "start.sh")],
            cwd=folder / name,
            env=participant_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            check=True,
        )


def participant_environment(folder: Path) -> dict[str, str]:
    """Return the environment of the federation's processes: the caller's, this Python first, the mark."""
    interpreters = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{interpreters}{os.pathsep}{os.environ.get('PATH', '')}", MARK: str(folder)}


def wait_until_ready(project: Project, folder: Path) -> None:
    """Return when the server's admin service knows every site; raise an error with the logs' place if it does not."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    missing = set(project.sites)
    while missing:
        if time.monotonic() > deadline:
            raise FDGError(
                f"folder {folder}: not ready after {READY_TIMEOUT_S} s, waiting for {', '.join(missing)}; "
                f"all were ended, and each participant's {CONSOLE_LOG} says why."
            )
        time.sleep(1.0)
        # A login takes seconds; before there is anything to connect to, none is tried.
        with contextlib.suppress(OSError, DataError), socket.create_connection((HOST, project.ports[1]), timeout=1.0):
            with Server(folder / project.people[0], LOGIN_TIMEOUT_S) as server:
                system = server.ask(lambda session: session.get_system_info())
            missing = set(project.sites) - {client.name for client in system.client_info}


def belongs(process: psutil.Process, kit: Path) -> bool:
    """Return whether the process is one of the participant whose kit this is."""
    return any(part == str(kit) or part.startswith(f"{kit}{os.sep}") for part in _words(process))


def end_all(folder: Path) -> int:
    """End every process of the federation; the daemons first, or they would start what was just ended."""
    found = processes_below(folder)
    daemons = [process for process in found if any(part.endswith(DAEMON_SCRIPT) for part in _words(process))]
    for process in [*daemons, *(each for each in found if each not in daemons)]:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL if process in daemons else signal.SIGTERM)
    psutil.wait_procs(found, timeout=GRACE_S)
    end_processes(folder)  # also those that were started meanwhile
    for file in LEFT_BY_DAEMON:
        for path in folder.glob(f"*/{file}"):
            path.unlink(missing_ok=True)
    return len(found)


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []
