# SPDX-License-Identifier: Apache-2.0
"""``fdg submit``: submit a job, follow it to its end, and resume it when one of its processes dies."""

import tempfile
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fdg_plugins.cli.console import FAILED, INTERRUPTED, say
from fdg_plugins.cli.jobs import write_resuming_job
from fdg_plugins.cli.watch import (
    COMPLETED,
    PATIENCE_S,
    SERVER_TIMEOUT_S,
    SITES_S,
    Server,
    follow,
    judge,
    warn_of_missing,
)
from fdg_plugins.lab.engine.workflow import arguments_of, find_workflow

MAX_RESUMES = 10  # in a row that are not known to have completed a further round


def submit(
    job: Annotated[Path, Argument(help="The job folder, such as jobs/pacs_fedomg.")],
    kit: Annotated[Path, Argument(help="The startup kit of the person who submits: it holds startup/.")],
    resume_on_failure: Annotated[bool, Option("--resume-on-failure", help="Go on when a process has died.")] = False,
) -> int:
    """Submit a job that brings no code, and follow it to its end.

    Empty custom/ folders are left out, and the job's id is printed.

    Exit codes: 0 the job completed, 1 it did not, 2 it could not be submitted or followed.

    With --resume-on-failure, a job that ended because one of its processes died, at the server or at a site, continues
    in another job after its last complete round. A job that a user aborted, or that stopped by itself,
    such as a wrong setting or a site's budget, does not.

    Examples:

      fdg submit jobs/pacs_fedomg /srv/flare/lead@example.org --resume-on-failure
    """
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder, Server(kit, SERVER_TIMEOUT_S) as server:
        twin = write_resuming_job(job, Path(folder), None)
        # Before anything runs: reject a job that could not be resumed.
        resumes = arguments_of(find_workflow(twin)[2]).get("resume") if resume_on_failure else None
        warn_of_missing(server, twin)
        first = server.submit(twin)
        say(f"job {first}: submitted")
        try:
            if resume_on_failure:
                completed = _carry_through(server, first, twin, str(resumes or first))
            else:
                completed = follow(server, first, say).status == COMPLETED
        except KeyboardInterrupt:
            say("no longer followed; the job goes on at the server", on_stderr=True)
            return INTERRUPTED
    return 0 if completed else FAILED


def _carry_through(server: Server, first: str, job: Path, run: str) -> bool:
    """Follow job ``first``, and those that resume its run, to the end; return whether the last one completed."""
    current, idle, complete = first, 0, 0
    while (ending := follow(server, current, say)).status != COMPLETED:
        verdict = judge(server, current, ending, is_first=current == run)
        if verdict.finished:
            say(f"job {current}: it broke off after its run had finished; the results are complete")
            return True
        rounds = verdict.rounds or 0
        if rounds > complete:
            complete, idle = rounds, 0
        if verdict.because or idle >= MAX_RESUMES:
            tired = f"it was resumed {idle} times in a row without completing another round"
            say(f"job {current}: not resumed: {(verdict.because or tired).rstrip('.')}.")
            return False
        idle += 1
        warn_of_missing(server, job, SITES_S)
        with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
            current = server.submit(write_resuming_job(job, Path(folder), run), PATIENCE_S)
        say(f"job {current}: submitted; it resumes run {run}{f' after round {rounds}' if rounds else ''}")
    return True
