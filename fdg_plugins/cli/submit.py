# SPDX-License-Identifier: Apache-2.0
"""``fdg submit``: submit a job, follow it to its end, and resume it when one of its processes dies."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.cli.resume import Kit, ServerTimeout, run_of, sites_of, warn_of_missing, write_resuming_job
from fdg_plugins.errors import SettingsError

if TYPE_CHECKING:
    from fdg_plugins.cli.watch import Server, Verdict

FAILED = 1
INTERRUPTED = 130


def submit(
    job: Annotated[Path, typer.Argument(help="The job folder, such as jobs/pacs_fedomg.", show_default=False)],
    kit: Kit,
    resume_on_failure: Annotated[
        bool, typer.Option("--resume-on-failure", help="When a process died, submit the job that goes on with the run.")
    ] = False,
    max_resumes: Annotated[
        int, typer.Option(min=0, help="How often in a row the run may go on without completing another round.")
    ] = 3,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the job's end.")] = False,
    server_timeout: ServerTimeout = 15.0,
) -> None:
    """Submit a job without its custom/ folders, print its id, and follow it to its end.

    Exit codes: 0 the job completed, 1 it did not, 2 it could not be submitted or followed.

    With --resume-on-failure, a job that ended because one of its processes died, at the server or at a site, continues
    in another job after its last complete round. A job that a user aborted, or that stopped for a reason of its own,
    such as a wrong setting or a site's budget, does not.

    Examples:

      fdg submit jobs/pacs_fedomg --kit /srv/flare/lead@example.org --resume-on-failure

      fdg submit jobs/pacs_fedomg --kit /srv/flare/lead@example.org --detach
    """
    from fdg_plugins.cli.watch import Server

    if detach and resume_on_failure:
        raise SettingsError("--detach and --resume-on-failure exclude each other: who resumes must wait for the end.")
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder, Server(kit, server_timeout) as server:
        twin = write_resuming_job(job, Path(folder) / "twin", None)
        own_run = (
            run_of(twin) if resume_on_failure else None
        )  # before anything runs: reject a job that could not be resumed
        first = server.submit(write_resuming_job(twin, Path(folder) / "first", None))
        say(f"job {first}: submitted")
        if detach:
            return
        try:
            completed = _carry_through(
                server, twin, first, own_run or first, max_resumes if resume_on_failure else None
            )
        except KeyboardInterrupt as order:
            say("no longer followed; the job goes on at the server", on_stderr=True)
            raise typer.Exit(INTERRUPTED) from order
    if not completed:
        raise typer.Exit(FAILED)


def _carry_through(server: "Server", twin: Path, first: str, run: str, max_resumes: int | None) -> bool:
    """Follow job ``first``, and those that resume ``run``, to the end; return whether the last one completed.

    ``max_resumes`` limits resumptions in a row without a new complete round; None: a failed job is not resumed.
    """
    from fdg_plugins.cli.watch import COMPLETED, PATIENCE_S, SITES_S, follow, judge, missing_sites

    current, idle, rounds = first, 0, 0
    while True:
        ending = follow(server, current, say)
        if ending.status == COMPLETED:
            return True
        if max_resumes is None:
            return False
        verdict = judge(server, current, ending, is_first=current == run)
        if verdict.rounds is not None and verdict.rounds > rounds:
            rounds, idle = verdict.rounds, 0
        if reason := _obstacle(verdict, idle, max_resumes):
            say(f"job {current}: not resumed: {reason.rstrip('.')}.")
            return False
        idle += 1
        warn_of_missing(missing_sites(server, sites_of(twin), SITES_S))
        with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
            current = server.submit(write_resuming_job(twin, Path(folder), run), PATIENCE_S)
        after = f" after round {verdict.rounds}" if verdict.rounds else ""
        say(f"job {current}: submitted; it goes on with run {run}{after}")


def _obstacle(verdict: "Verdict", idle: int, max_resumes: int) -> str:
    """Return why a run is not resumed; empty if it is."""
    if not verdict.resumable:
        return verdict.reason
    if idle >= max_resumes:
        return f"it was resumed {idle} times in a row without completing another round"
    return ""
