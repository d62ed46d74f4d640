# SPDX-License-Identifier: Apache-2.0
"""``python -m fdg_plugins.cli.one_federation JOB WORKSPACE STATE``: a job in a separate federation, to its end.

The federation is that of ``fdg poc start``, in ``WORKSPACE/federation``, with the job's sites and on free ports. The
job is submitted without its ``custom/`` folders, by a person who may not bring code. Where the data are, and how a site
computes, is told by this process's environment, as in the simulator. ``WORKSPACE/results`` has what the job leaves,
from the first round on. If ``STATE`` holds the state of an interrupted run, the job resumes it.

Exit codes: 0 the job has completed, 1 it has not; the log says why.
"""

import logging
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fdg_plugins.cli.jobs import write_resuming_job
from fdg_plugins.cli.submit import COMPLETED, follow
from fdg_plugins.errors import FDGError
from fdg_plugins.flare.sessions import Server
from fdg_plugins.lab.engine.workflow import sites_of
from fdg_plugins.lab.poc.kits import Project, configure, provision, read_project
from fdg_plugins.lab.poc.processes import CONSOLE_LOG, launched
from fdg_plugins.lab.sweep.machine import RESULTS
from fdg_plugins.lab.sweep.run import LOG_FILE
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE
from fdg_plugins.settings.site_config import FILE_NAME
from fdg_plugins.storage import write_json

FEDERATION = "federation"
SESSION_S = 30.0

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
    folder = workspace / FEDERATION
    workspace.mkdir(parents=True, exist_ok=True)
    project = read_project(*free_ports(), sites=sites_of(job))
    with (
        running(project, folder, workspace.parent / LOG_FILE),
        Server(folder / project.people[-1], SESSION_S) as server,
        tempfile.TemporaryDirectory(dir=workspace) as place,
    ):
        name = server.submit(write_resuming_job(job, Path(place), interrupted_run(state)))
        _logger.info("job %s: submitted", name)
        # Until the job has ended, what it leaves is in its folder at the server, which FLARE removes then.
        (workspace / RESULTS).symlink_to(folder / project.server["name"] / name)
        ending = follow(server, name, _logger.info)
        collect(server, name, workspace / RESULTS, Path(place))
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
    configure(project, folder)
    for participant in (project.server["name"], *project.sites):
        (folder / participant / CONSOLE_LOG).symlink_to(log)
    with launched(project, folder):
        yield


def collect(server: Server, job: str, results: Path, place: Path) -> None:
    """Download what a job has left to ``place``, and put it in the place of the link ``results``."""
    found = Path(server.ask(lambda session: session.download_job_result(job, destination=str(place)), SESSION_S))
    results.unlink()
    (found / "workspace").rename(results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
