# SPDX-License-Identifier: Apache-2.0
"""``fdg resume``: resume a run of this machine in its folder, or a run of a federation in another job."""

import filecmp
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fdg_plugins.cli.console import say, warn
from fdg_plugins.cli.follow import follow, sum_up
from fdg_plugins.cli.options import DataRootOption
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.record.run_files import RESULTS_FILE

SIGNATURE = ".__nvfl_sig.json"  # FLARE signs the folders of a submitted job in place
SERVER_TIMEOUT_S = 60.0  # a login of a busy server takes many seconds


def resume(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="RUNFOLDER|JOBFOLDER",
            help="The folder of a run of fdg run; with --kit, the job folder that the run was started with.",
            show_default=False,
        ),
    ],
    data_root: DataRootOption = None,
    kit: Annotated[
        Path | None, typer.Option(help="The startup kit of the person who submits: a folder that holds startup/.")
    ] = None,
    run: Annotated[str | None, typer.Option(help="With --kit: id of the job that started the run.")] = None,
    with_current_plugin: Annotated[
        bool, typer.Option("--with-current-plugin", help="Use plug-in files as they are now; results.json says so.")
    ] = False,
) -> None:
    """Resume a run after its last complete round.

    A run of fdg run goes on in its folder, on the same data, with as many
    threads, and ends with the same bits as if it had never been stopped.

    In a real federation (--kit, --run), the server keeps model, record and the
    method's state of every complete round. The job is submitted again, set to
    go on from there. If it differs from the one that started the run, the
    server rejects it, with one sentence in its log.

    Examples:

      fdg resume runs/fedomg-pacs-sketch-seed0-20300102-030405 --data-root /data

      fdg resume jobs/pacs_fedomg --kit /srv/flare/lead@example.org --run 3379af42-b0b1-4066-889e-7cf89997f720
    """
    if kit is None and run is None:
        raise typer.Exit(_resume_here(what, data_root, with_current_plugin=with_current_plugin))
    if kit is None or run is None or data_root is not None or with_current_plugin:
        raise SettingsError("--kit and --run belong together, for a federation, without the other options.")
    _resume_there(what, kit, run)


def _resume_here(folder: Path, data_root: Path | None, *, with_current_plugin: bool) -> int:
    """Go on with a run of this machine in its own folder; return the exit code."""
    from fdg_plugins.lab.engine.kept import KeptJob, check_same_data, read_kept
    from fdg_plugins.lab.engine.run import check_run
    from fdg_plugins.lab.sweep.execute import listening
    from fdg_plugins.lab.sweep.folder import JOB
    from fdg_plugins.lab.sweep.machine import machine_environment
    from fdg_plugins.lab.sweep.processes import finished_record
    from fdg_plugins.plugins.own_dataset import OwnDataset

    kept = read_kept(folder)
    if finished_record(folder / RESULTS_FILE) is not None:
        raise DataError(f"the run in {folder} has finished: there is nothing to go on with.")
    environment = machine_environment(os.environ, data_root)
    if isinstance(kept.dataset, OwnDataset) and "FDG_DATA_ROOT" not in environment:
        raise DataError(
            f"the run in {folder} is on images of your own, {kept.dataset}, and does not keep where they are; expected "
            "--data-root DIR, their folder."
        )
    _check_plugins(folder / JOB, kept.plugins, may_change=with_current_plugin)
    source = KeptJob(folder, kept, environment)
    data = check_run(source)
    check_same_data(folder, kept, data)
    with listening() as order:
        ending = follow(folder, source, data, kept, kept.at_once, order)
    return sum_up(folder, source, kept, ending)


def _check_plugins(job: Path, files: Sequence[str], *, may_change: bool) -> None:
    """Raise ``DataError`` for a plug-in file that is no longer as in the run's job; or take the current one there."""
    from fdg_plugins.lab.engine.workflow import arguments_of, find_workflow
    from fdg_plugins.storage import write_json

    for file in map(Path, files):
        copies = [copy for copy in job.glob(f"*/custom/{file.name}") if file.is_file()]
        changed = [copy for copy in copies if not filecmp.cmp(file, copy, shallow=False)]
        if changed and not may_change:
            raise DataError(
                f"plug-in file {file} differs from the run's copy, expected a new run (fdg run), or "
                "--with-current-plugin to resume with the file as it is now."
            )
        for copy in changed:
            shutil.copyfile(file, copy)
        if changed:
            path, config, workflow = find_workflow(job)
            workflow["args"] = {**arguments_of(workflow), "with_current_plugin": True}
            write_json(path, config)


def _resume_there(job: Path, kit: Path, run: str) -> None:
    """Submit a job to a federation that goes on with a run there."""
    from fdg_plugins.cli.watch import COMPLETED, SITES_S, Server, is_running, missing_sites
    from fdg_plugins.lab.engine.workflow import sites_of

    with tempfile.TemporaryDirectory(prefix="fdg-") as folder, Server(kit, SERVER_TIMEOUT_S) as server:
        resuming = write_resuming_job(job, Path(folder), run)
        status, system = server.status(run)
        if status == COMPLETED:
            raise DataError(f"job {run} has completed: there is nothing to go on with.")
        if is_running(system, run):
            raise DataError(f"job {run} still runs ({status}), expected one that has ended.")
        warn_of_missing(missing_sites(server, sites_of(resuming), SITES_S))
        say(f"job {server.submit(resuming)}: submitted; it goes on with run {run}")


def write_resuming_job(job: Path, to: Path, run: str | None) -> Path:
    """Write a copy of ``job`` that resumes ``run`` (None: unchanged) below ``to``; return its folder."""
    from fdg_plugins.cli.jobs import check_job, export
    from fdg_plugins.lab.engine.workflow import arguments_of, find_workflow
    from fdg_plugins.storage import write_json

    if any(job.rglob(SIGNATURE)):
        to.mkdir(exist_ok=True)
        unsigned = to / ".unsigned" / job.resolve().name
        job = Path(shutil.copytree(job, unsigned, ignore=shutil.ignore_patterns(SIGNATURE)))
    own_name = check_job(job).get("name")
    twin = export(job, to, own_name if isinstance(own_name, str) else None)
    if run is not None:
        path, config, workflow = find_workflow(twin)
        workflow["args"] = {**arguments_of(workflow), "resume": run}
        write_json(path, config)
    return twin


def warn_of_missing(sites: list[str]) -> None:
    """Warn of sites that the resuming job may have to do without."""
    if sites:
        warn(f"{', '.join(sites)} not connected to the server; a run starts, and goes on, with all of its sites only.")
