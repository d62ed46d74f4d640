# SPDX-License-Identifier: Apache-2.0
"""``fdg submit``: submit a job, follow it to its end, and resume it when one of its processes dies."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fdg_plugins.cli.console import FAILED, INTERRUPTED, say
from fdg_plugins.cli.resume import SERVER_TIMEOUT_S, warn_of_missing, write_resuming_job

if TYPE_CHECKING:
    from fdg_plugins.cli.watch import Server

MAX_RESUMES = 10  # in a row that are not known to have completed a further round


def submit(
    job: Annotated[Path, typer.Argument(help="The job folder, such as jobs/pacs_fedomg.", show_default=False)],
    kit: Annotated[
        Path,
        typer.Argument(
            help="The startup kit of the person who submits: a folder that holds startup/.", show_default=False
        ),
    ],
    resume_on_failure: Annotated[
        bool, typer.Option("--resume-on-failure", help="When a process died, submit the job that goes on with the run.")
    ] = False,
) -> None:
    """Submit a job that brings no code, and follow it to its end.

    Empty custom/ folders are left out, and the job's id is printed.

    Exit codes: 0 the job completed, 1 it did not, 2 it could not be submitted or followed.

    With --resume-on-failure, a job that ended because one of its processes died, at the server or at a site, continues
    in another job after its last complete round. A job that a user aborted, or that stopped for a reason of its own,
    such as a wrong setting or a site's budget, does not.

    Examples:

      fdg submit jobs/pacs_fedomg /srv/flare/lead@example.org --resume-on-failure
    """
    from fdg_plugins.cli.watch import COMPLETED, Server, follow, missing_sites
    from fdg_plugins.lab.engine.workflow import arguments_of, find_workflow, sites_of

    with tempfile.TemporaryDirectory(prefix="fdg-") as folder, Server(kit, SERVER_TIMEOUT_S) as server:
        twin = write_resuming_job(job, Path(folder) / "twin", None)
        # Before anything runs: reject a job that could not be resumed.
        resumes = arguments_of(find_workflow(twin)[2]).get("resume") if resume_on_failure else None
        warn_of_missing(missing_sites(server, sites_of(twin), patience=0.0))
        first = server.submit(write_resuming_job(twin, Path(folder) / "first", None))
        say(f"job {first}: submitted")
        try:
            if resume_on_failure:
                completed = _carry_through(server, first, twin, str(resumes or first))
            else:
                completed = follow(server, first, say).status == COMPLETED
        except KeyboardInterrupt as order:
            say("no longer followed; the job goes on at the server", on_stderr=True)
            raise typer.Exit(INTERRUPTED) from order
    if not completed:
        raise typer.Exit(FAILED)


def _carry_through(server: "Server", first: str, job: Path, run: str) -> bool:
    """Follow job ``first``, and those that resume its run, to the end; return whether the last one completed."""
    from fdg_plugins.cli.watch import COMPLETED, follow, judge

    current, idle, complete = first, 0, 0
    while (ending := follow(server, current, say)).status != COMPLETED:
        verdict = judge(server, current, ending, is_first=current == run)
        if verdict.finished:
            say(f"job {current}: it broke off after its run had finished; the results are complete")
            return True
        if (verdict.rounds or 0) > complete:
            complete, idle = verdict.rounds or 0, 0
        if not verdict.resumable or idle >= MAX_RESUMES:
            tired = f"it was resumed {idle} times in a row without completing another round"
            say(f"job {current}: not resumed: {(verdict.reason or tired).rstrip('.')}.")
            return False
        idle += 1
        current = _resume(server, job, run, verdict.rounds)
    return True


def _resume(server: "Server", job: Path, run: str, rounds: int | None) -> str:
    """Submit the job that resumes ``run`` after its complete ``rounds``, as far as known; return its id."""
    from fdg_plugins.cli.watch import PATIENCE_S, SITES_S, missing_sites
    from fdg_plugins.lab.engine.workflow import sites_of

    warn_of_missing(missing_sites(server, sites_of(job), SITES_S))
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
        resuming = server.submit(write_resuming_job(job, Path(folder), run), PATIENCE_S)
    after = f" after round {rounds}" if rounds else ""
    say(f"job {resuming}: submitted; it goes on with run {run}{after}")
    return resuming
