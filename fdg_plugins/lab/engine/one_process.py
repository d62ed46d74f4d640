# SPDX-License-Identifier: Apache-2.0
"""``python -m fdg_plugins.lab.engine.one_process JOB WORKSPACE [WORKERS]``: a job folder in this process, to its end.

With more than one of ``WORKERS``, as many sites at a time train and evaluate, in separate processes. What the job
leaves in ``WORKSPACE`` lies where FLARE's simulator leaves it. SIGTERM and Ctrl-C abort the job, whose record then
says ``stopped``; a second one ends the process at once. A folder with ``plan.json`` is the job of a reference.

Exit codes: 0 the job has finished, 1 the folder holds no job that can be built, 2 the job failed or was stopped.
"""

import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TextIO

import torch
from nvflare.apis import fl_component

from fdg_plugins.data import SharedDomains
from fdg_plugins.errors import FDGError
from fdg_plugins.executors.training_process import WorkerPool
from fdg_plugins.executors.work import SiteWork
from fdg_plugins.lab.centralised.plan import PLAN_FILE, read_plan
from fdg_plugins.lab.centralised.run import run_centralised
from fdg_plugins.lab.engine.local_job import OneProcessJob
from fdg_plugins.record.run_files import SIMULATOR_FOLDER
from fdg_plugins.settings.site_config import read_site_config
from fdg_plugins.storage import named_path

UNUSABLE, FAILED = 1, 2

_logger = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Run the job; ``arguments``: its folder, that of the workspace, number of workers. Return the exit code."""
    job, workspace = (Path(text).absolute() for text in arguments[:2])
    log_to(sys.stdout)
    try:
        if (job / PLAN_FILE).is_file():
            run_reference(job, workspace)
            return 0
        return run_job(job, workspace, int(arguments[2]) if len(arguments) > 2 else 1)
    except FDGError as error:
        _logger.error("stopped: %s", error)
        return UNUSABLE


def run_job(job: Path, workspace: Path, workers: int) -> int:
    """Run the job of a federation; return the exit code."""
    # No site of this process is lost, and FLARE's search for one costs the square of their number.
    os.environ["NVFLARE_DEAD_CLIENT_CHECK_LEAD_TIME"] = "inf"
    pool = WorkerPool(workers, _logger.info) if workers > 1 else None
    try:
        made = OneProcessJob(job, workspace, pool or SiteWork(SharedDomains()), workers)
        _stop_on_signals(made)
        return 0 if made.run() else FAILED
    finally:
        if pool is not None:
            pool.close()


def run_reference(job: Path, workspace: Path) -> None:
    """Carry out the plan of a reference on this machine, whose results are where a federation's are."""
    config = read_site_config("centralised", None, os.environ)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    run_centralised(read_plan(job), config, named_path("FDG_CACHE", os.environ), workspace / SIMULATOR_FOLDER)


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
