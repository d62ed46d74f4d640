# SPDX-License-Identifier: Apache-2.0
"""``fdg resume``: resume a run, after its server or sites died, in another job."""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.errors import DataError

SIGNATURE = ".__nvfl_sig.json"  # FLARE signs the folders of a submitted job in place

Kit = Annotated[Path, typer.Option(help="The startup kit of the person who submits: a folder that holds startup/.")]
ServerTimeout = Annotated[float, typer.Option(min=1.0, help="Seconds that a server which is away is waited for.")]


def resume(
    job: Annotated[Path, typer.Argument(help="The job folder that the run was started with.", show_default=False)],
    kit: Kit,
    run: Annotated[str, typer.Option(help="Id of the job that started the run.")],
    name: Annotated[str | None, typer.Option(help="Another name for the new job; default: the job's own.")] = None,
    server_timeout: ServerTimeout = 15.0,
) -> None:
    """Resume a run whose job broke off, after its last complete round.

    The server keeps model, record and the method's state of every complete round. This command submits the job again,
    set to resume from there: the run then ends as if it had not been interrupted. If the job differs from the one that
    started the run, the server rejects it, with one sentence in its log.

    Examples:

      fdg resume jobs/pacs_fedomg --kit /srv/flare/lead@example.org --run 3379af42-b0b1-4066-889e-7cf89997f720
    """
    from fdg_plugins.cli.watch import COMPLETED, SITES_S, Server, check_job_id, is_running, missing_sites
    from fdg_plugins.engine.workflow import sites_of

    check_job_id(run)
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder, Server(kit, server_timeout) as server:
        resuming = write_resuming_job(job, Path(folder), run, name)
        status, system = server.status(run)
        if status == COMPLETED:
            raise DataError(f"job {run} has completed: there is nothing to go on with.")
        if is_running(system, run):
            raise DataError(f"job {run} still runs ({status}), expected one that has ended.")
        warn_of_missing(missing_sites(server, sites_of(resuming), SITES_S))
        say(f"job {server.submit(resuming)}: submitted; it goes on with run {run}")


def write_resuming_job(job: Path, to: Path, run: str | None, name: str | None = None) -> Path:
    """Write a copy of ``job`` that resumes ``run`` (None: unchanged) below ``to``; return its folder."""
    from fdg_plugins.cli.jobs import check_job, export
    from fdg_plugins.engine.workflow import arguments_of, find_workflow
    from fdg_plugins.storage import write_json

    job = _unsigned(job, to)
    own_name = check_job(job).get("name")
    twin = export(job, to, own_name if name is None and isinstance(own_name, str) else name)
    if run is not None:
        path, config, workflow = find_workflow(twin)
        workflow["args"] = {**arguments_of(workflow), "resume": run}
        write_json(path, config)
    return twin


def _unsigned(job: Path, to: Path) -> Path:
    """Return a copy of ``job`` without FLARE's signatures, below ``to``; the job itself if it has none."""
    if not any(job.rglob(SIGNATURE)):
        return job
    to.mkdir(exist_ok=True)
    return Path(shutil.copytree(job, to / ".unsigned" / job.resolve().name, ignore=shutil.ignore_patterns(SIGNATURE)))


def run_of(job: Path) -> str | None:
    """Return the run that the job in folder ``job`` resumes by its own config; None if it starts one.

    Raises ``SettingsError`` if no run of the job could be resumed.
    """
    from fdg_plugins.engine.workflow import arguments_of, find_workflow

    found = arguments_of(find_workflow(job)[2]).get("resume")
    return None if found is None else str(found)


def warn_of_missing(sites: list[str]) -> None:
    """Warn of sites that the resuming job may have to do without."""
    if sites:
        say(
            f"Warning: {', '.join(sites)} not connected to the server; a run goes on with all of its sites only.",
            style="yellow",
            on_stderr=True,
        )
