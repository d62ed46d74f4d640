# SPDX-License-Identifier: Apache-2.0
"""``python -m fdg_plugins.cli.one_federation JOB WORKSPACE STATE``: a job in a separate federation, to its end.

The federation is that of ``fdg poc start``, in ``WORKSPACE/federation``, with the job's sites and on free ports. The
job is submitted without its ``custom/`` folders, by a person who may not bring code. Where the data are, and how a site
computes, is told by this process's environment, as in the simulator. ``WORKSPACE/results`` has the record from the
first round on, and in the end all that the job has left. If ``STATE`` holds the state of an interrupted run, the job
resumes it.

Exit codes: 0 the job has completed, 1 it has not; the log says why.
"""

import logging
import os
import shutil
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from fdg_plugins.cli.jobs import write_resuming_job
from fdg_plugins.cli.watch import COMPLETED, Server, follow
from fdg_plugins.errors import FDGError
from fdg_plugins.flare.trackers import MLFLOW_FILE
from fdg_plugins.lab.engine.run import RESULTS
from fdg_plugins.lab.engine.workflow import sites_of
from fdg_plugins.lab.poc.kits import Project, SiteData, configure, provision, read_project
from fdg_plugins.lab.poc.processes import CONSOLE_LOG, launched
from fdg_plugins.lab.sweep.processes import LOG_FILE, finished_record
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE
from fdg_plugins.record.run_files import KEPT, RESULTS_FILE, TRACKED
from fdg_plugins.settings.site_config import FILE_NAME
from fdg_plugins.storage import write_json

FEDERATION = "federation"
SESSION_S = 30.0
LOOK_S = 1.0  # between two looks at the record

_logger = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Execute a job; ``arguments``: its folder, that of the workspace, that of the state. Return the exit code."""
    job, workspace, state = (Path(text).absolute() for text in arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s - %(levelname)s - %(message)s")
    logging.getLogger("nvflare").setLevel(logging.WARNING)  # the session's records about its connection
    os.environ.setdefault("FL_LOG_LEVEL", "concise")  # of every participant, as in the simulator
    try:
        execute(job, workspace, state)
    except FDGError as error:
        _logger.error("stopped: %s", error)
        return 1
    return 0


def execute(job: Path, workspace: Path, state: Path) -> None:
    """Run ``job`` in a separate federation, of which no process is left; raise an error unless it completes."""
    folder, results = workspace / FEDERATION, workspace / RESULTS
    results.mkdir(parents=True, exist_ok=True)
    project = read_project(*free_ports(), sites=sites_of(job))
    with ExitStack() as afterwards, running(project, folder, workspace.parent / LOG_FILE), ExitStack() as stack:
        server = stack.enter_context(Server(folder / project.people[-1], SESSION_S))
        with tempfile.TemporaryDirectory(dir=workspace) as twin:
            name = server.submit(write_resuming_job(job, Path(twin), interrupted_run(state)))
        _logger.info("job %s: submitted", name)
        at_server = folder / project.server["name"] / name
        afterwards.callback(mirror, at_server, results)  # rounds that end while the federation is being ended
        stack.enter_context(mirroring(at_server, results))
        ending = follow(server, name, _logger.info)
        collect(server, name, results)
    if ending.status != COMPLETED or ending.lost:
        raise FDGError(f"the job ended with status {ending.status}.")


def free_ports() -> tuple[int, int]:
    """Return two ports, for sites and for people, that are free at every address: the server listens on all of them."""
    with socket.create_server(("", 0)) as one, socket.create_server(("", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def interrupted_run(state: Path) -> str | None:
    """Return the run whose complete rounds the server has kept below ``state``; None if there is none."""
    return min((path.parent.name for path in state.glob(f"*/*/*/{CHECKPOINT_FILE}")), default=None)


@contextmanager
def running(project: Project, folder: Path, log: Path) -> Iterator[None]:
    """Provision a federation into ``folder``, start it, and end it; what its processes print is in ``log``."""
    folder.mkdir()
    provision(project, folder)
    for site in project.sites:
        # Without an entry, a site takes its domain from its name, and all else from the environment.
        write_json(folder / site / "local" / FILE_NAME, {})
    configure(project, folder, SiteData())
    for participant in (project.server["name"], *project.sites):
        (folder / participant / CONSOLE_LOG).symlink_to(log)
    with launched(project, folder):
        yield


@contextmanager
def mirroring(job: Path, results: Path) -> Iterator[None]:
    """Mirror a job's record again and again, in a thread, until the block has ended."""
    is_over = Event()

    def repeat() -> None:
        while not is_over.wait(LOOK_S):
            mirror(job, results)

    thread = Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def mirror(job: Path, results: Path) -> None:
    """Copy the record from a job's folder at the server, if it is there and newer; the copy is replaced atomically.

    What is tracked is copied with it, since a run that is killed leaves nothing else of this folder. Before a record
    that says that the run has finished, everything else that the run leaves is copied.
    """
    record, fresh, copy = job / RESULTS_FILE, results / f".{RESULTS_FILE}", results / RESULTS_FILE
    with suppress(OSError):  # none yet, or FLARE removes the folder
        if copy.exists() and copy.stat().st_mtime_ns == record.stat().st_mtime_ns:
            return
        shutil.copy2(record, fresh)
        finished = finished_record(fresh) is not None
        for name in KEPT[:-1] if finished else TRACKED:
            try:
                copy_all(job / name, results / name)
            except OSError:
                if finished:  # otherwise the record is worth more, and the next round tries again
                    raise
        fresh.replace(copy)


def copy_all(source: Path, target: Path) -> None:
    """Copy a file, or a folder with its content, over what is there, if it exists; of a database, a whole state."""
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.name == MLFLOW_FILE and source.exists():  # to which another process may be writing
        address = f"{source.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(address, uri=True)) as one, closing(sqlite3.connect(target)) as other:
                one.backup(other)
        except sqlite3.Error as error:
            raise OSError(f"{source} cannot be copied: {error}") from error
    elif source.exists():
        shutil.copy2(source, target)


def collect(server: Server, job: str, results: Path) -> None:
    """Move what a job has left to ``results``, replacing what is there; the record last."""
    with tempfile.TemporaryDirectory(dir=results.parent) as folder:
        place = Path(server.ask(lambda session: session.download_job_result(job, destination=folder), SESSION_S))
        for path in sorted((place / "workspace").glob("*"), key=lambda path: path.name == RESULTS_FILE):
            target = results / path.name
            if target.is_dir() and path.is_dir():  # copied before, perhaps while it was still written to
                copy_all(path, target)
            else:
                path.replace(target)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
