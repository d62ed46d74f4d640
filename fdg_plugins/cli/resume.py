# SPDX-License-Identifier: Apache-2.0
"""``fdg resume``: resume a run of this machine in its folder, or a run of a federation in another job."""

import filecmp
import os
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fdg_plugins.cli.console import say
from fdg_plugins.cli.jobs import change_workflow, write_resuming_job
from fdg_plugins.cli.options import DataRootOption
from fdg_plugins.cli.run import follow, sum_up
from fdg_plugins.cli.submit import COMPLETED, SERVER_TIMEOUT_S, SITES_S, is_running, warn_of_missing
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.flare.sessions import Server
from fdg_plugins.lab.centralised.plan import PLAN_FILE
from fdg_plugins.lab.engine.run import check_run
from fdg_plugins.lab.engine.sources import KeptRun, check_same_data, kept_source, read_kept
from fdg_plugins.lab.sweep.machine import machine_environment
from fdg_plugins.lab.sweep.run import JOB, listening


def resume(
    what: Annotated[Path, Argument(metavar="RUNFOLDER|JOBFOLDER", help="The folder of a run; with --kit, of its job.")],
    data_root: DataRootOption = None,
    kit: Annotated[Path | None, Option(help="The startup kit of the person who submits.")] = None,
    run: Annotated[str | None, Option(help="With --kit: id of the job that started the run.")] = None,
    with_current_plugin: Annotated[
        bool, Option("--with-current-plugin", help="Use plug-in files as they are now; results.json says so.")
    ] = False,
) -> int:
    """Resume a run after its last complete round.

    A run of fdg run goes on in its folder, on the same data, with as many threads, and is bit-identical to one that was
    never stopped. A reference begins anew.

    In a real federation (--kit, --run), the job is submitted again, set to go on from the server's last complete round.
    If it differs from the one that started the run, the server rejects it, with one sentence in its log.

    Examples:

      fdg resume runs/fedomg-pacs-sketch-seed0-20300102-030405 --data-root /data
      fdg resume jobs/pacs_fedomg --kit /srv/flare/lead@example.org --run 3379af42-b0b1-4066-889e-7cf89997f720
    """
    if kit is None and run is None:
        return _resume_here(what, data_root, with_current_plugin)
    if kit is None or run is None or data_root is not None or with_current_plugin:
        raise SettingsError("--kit and --run belong together, for a federation, without the other options.")
    _resume_there(what, kit, run)
    return 0


def _resume_here(folder: Path, data_root: Path | None, with_current_plugin: bool) -> int:
    kept = read_kept(folder)
    environment = machine_environment(os.environ, data_root)
    _renew_plugins(folder / JOB, kept, with_current_plugin)
    source = kept_source(folder, kept, environment)
    data = check_run(source)
    check_same_data(folder, kept, data)
    with listening() as order:
        record, ending = follow(folder, source, data, kept, kept.at_once, order)
    return sum_up(folder, source, kept, record, ending)


def _renew_plugins(job: Path, kept: KeptRun, with_current: bool) -> None:
    """Raise ``DataError`` for a plug-in file that is no longer as in the run's job; or take the current one there."""
    there = [Path(file) for file in kept.plugins if Path(file).is_file()]
    pairs = [(file, copy) for file in there for copy in job.glob(f"*/custom/{file.name}")]
    for file, copy in (pair for pair in pairs if not filecmp.cmp(*pair, shallow=False)):
        if not with_current:
            expected = "a new run (fdg run), or --with-current-plugin to resume with the file as it is now"
            raise DataError(f"plug-in file {file} differs from the run's copy, expected {expected}.")
        shutil.copyfile(file, copy)
        if not (job / PLAN_FILE).exists():  # of a reference, which begins anew
            change_workflow(job, with_current_plugin=True)


def _resume_there(job: Path, kit: Path, run: str) -> None:
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder, Server(kit, SERVER_TIMEOUT_S) as server:
        resuming = write_resuming_job(job, Path(folder), run)
        status, system = server.status(run)
        if status == COMPLETED:
            raise DataError(f"job {run} has completed: there is nothing to resume.")
        if is_running(system, run):
            raise DataError(f"job {run} still runs ({status}), expected one that has ended.")
        warn_of_missing(server, resuming, SITES_S)
        say(f"job {server.submit(resuming)}: submitted; it resumes run {run}")
