# SPDX-License-Identifier: Apache-2.0
"""``python -m fdg_plugins.lab.engine.one_process JOB WORKSPACE [WORKERS]``: a job folder in this process, to its end.

With more than one of ``WORKERS``, as many sites at a time train and evaluate, in separate processes. What the job
leaves in ``WORKSPACE`` lies where FLARE's simulator leaves it. SIGTERM and Ctrl-C abort the job, whose record then
says ``stopped``; a second one ends the process at once.

Exit codes: 0 the job has finished, 1 the folder holds no job that can be built, 2 the job failed or was stopped.
"""

import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TextIO

from nvflare.apis import fl_component

from fdg_plugins.data import SharedDomains
from fdg_plugins.errors import FDGError
from fdg_plugins.executors.training_process import WorkerPool
from fdg_plugins.executors.work import SiteWork
from fdg_plugins.lab.engine.local_job import OneProcessJob

UNUSABLE, FAILED = 1, 2

_logger = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Run the job; ``arguments``: its folder, that of the workspace, number of workers. Return the exit code."""
    job, workspace = (Path(text).absolute() for text in arguments[:2])
    workers = int(arguments[2]) if len(arguments) > 2 else 1
    log_to(sys.stdout)
    # No site of this process is lost, and FLARE's search for one costs the square of their number.
    os.environ["NVFLARE_DEAD_CLIENT_CHECK_LEAD_TIME"] = "inf"
    pool = WorkerPool(workers, _logger.info) if workers > 1 else None
    try:
        made = OneProcessJob(job, workspace, pool or SiteWork(SharedDomains()), workers)
    except FDGError as error:
        _logger.error("stopped: %s", error)
        return UNUSABLE
    except Exception as error:
        _logger.exception("stopped: FLARE cannot build the job: %s", error)  # it may name any class
        return UNUSABLE
    _stop_on_signals(made)
    try:
        return 0 if made.run() else FAILED
    finally:
        if pool is not None:
            pool.close()


def log_to(stream: TextIO) -> None:
    """Log in the form of FLARE's simulator, without FLARE's own records about single tasks."""
    logging.basicConfig(level=logging.INFO, stream=stream, format="%(asctime)s - %(levelname)s - %(message)s")
    logging.getLogger("nvflare").setLevel(logging.WARNING)
    # FLARE puts it before each message, ``[identity=..., run=...]: ``, also of the many that are not logged.
    fl_component.generate_log_message = lambda _, message: message


def _stop_on_signals(job: OneProcessJob) -> None:
    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        job.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
