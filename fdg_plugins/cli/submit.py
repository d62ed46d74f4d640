# SPDX-License-Identifier: Apache-2.0
"""``fdg submit``: submit a job, follow it to its end, and resume it when one of its processes dies."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fdg_plugins.cli.console import FAILED, INTERRUPTED, say
from fdg_plugins.cli.resume import SERVER_TIMEOUT_S, Kit, ServerTimeout, run_of, warn_of_missing, write_resuming_job
from fdg_plugins.errors import SettingsError

if TYPE_CHECKING:
    from fdg_plugins.cli.watch import Server, Verdict

MAX_RESUMES = 3


def submit(
    job: Annotated[Path, typer.Argument(help="The job folder, such as jobs/pacs_fedomg.", show_default=False)],
    kit: Kit,
    resume_on_failure: Annotated[
        bool, typer.Option("--resume-on-failure", help="When a process died, submit the job that goes on with the run.")
    ] = False,
    max_resumes: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Most resumptions in a row that complete no further round.",
            show_default=str(MAX_RESUMES),
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the job's end.")] = False,
    server_timeout: ServerTimeout = SERVER_TIMEOUT_S,
) -> None:
    """Submit a job that brings no code, and follow it to its end.

    Empty custom/ folders are left out, and the job's id is printed.

    Exit codes: 0 the job completed, 1 it did not, 2 it could not be submitted or followed.

    With --resume-on-failure, a job that ended because one of its processes died, at the server or at a site, continues
    in another job after its last complete round. A job that a user aborted, or that stopped for a reason of its own,
    such as a wrong setting or a site's budget, does not.

    Examples:

      fdg submit jobs/pacs_fedomg --kit /srv/flare/lead@example.org --resume-on-failure

      fdg submit jobs/pacs_fedomg --kit /srv/flare/lead@example.org --detach
    """
    from fdg_plugins.cli.watch import Server, missing_sites
    from fdg_plugins.lab.engine.workflow import sites_of

    if detach and resume_on_failure:
        raise SettingsError("--detach and --resume-on-failure exclude each other: who resumes must wait for the end.")
    if max_resumes is not None and not resume_on_failure:
        raise SettingsError(f"--max-resumes is {max_resumes}, expected --resume-on-failure with it.")
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder, Server(kit, server_timeout) as server:
        twin = write_resuming_job(job, Path(folder) / "twin", None)
        # Before anything runs: reject a job that could not be resumed.
        most = MAX_RESUMES if max_resumes is None else max_resumes
        resumption = Resumption(twin, run_of(twin), most) if resume_on_failure else None
        warn_of_missing(missing_sites(server, sites_of(twin), patience=0.0))
        first = server.submit(write_resuming_job(twin, Path(folder) / "first", None))
        say(f"job {first}: submitted")
        if not detach:
            _wait_for_end(server, first, resumption)


class Resumption(NamedTuple):
    """How a run is resumed.

    ``job`` is the folder of the job, ``run`` the run that it resumes by its own config, None if it starts one. At most
    ``most`` resumptions in a row may complete no further round.
    """

    job: Path
    run: str | None
    most: int


@dataclass
class _Progress:
    """The complete rounds of a run, and the resumptions in a row that have added none."""

    rounds: int = 0
    idle: int = 0

    def note(self, rounds: int | None) -> None:
        """Take in the complete rounds of a job that runs or has ended, if they are known."""
        if rounds is not None and rounds > self.rounds:
            self.rounds, self.idle = rounds, 0


def _wait_for_end(server: "Server", first: str, resumption: Resumption | None) -> None:
    """Follow job ``first``, and those that resume its run, to the end; exit unless the last one completed.

    Without a ``resumption``, a failed job is not resumed. Ctrl-C ends the command, not the job.
    """
    from fdg_plugins.cli.watch import COMPLETED, follow

    try:
        if resumption is None:
            completed = follow(server, first, say).status == COMPLETED
        else:
            completed = _carry_through(server, first, resumption)
    except KeyboardInterrupt as order:
        say("no longer followed; the job goes on at the server", on_stderr=True)
        raise typer.Exit(INTERRUPTED) from order
    if not completed:
        raise typer.Exit(FAILED)


def _carry_through(server: "Server", first: str, resumption: Resumption) -> bool:
    """Follow job ``first``, and those that resume its run, to the end; return whether the last one completed."""
    from fdg_plugins.cli.watch import COMPLETED, follow, judge

    current, progress = first, _Progress()
    run = resumption.run or first
    while (ending := follow(server, current, say, progress.note)).status != COMPLETED:
        verdict = judge(server, current, ending, is_first=current == run)
        if verdict.finished:
            say(f"job {current}: it broke off after its run had finished; the results are complete")
            return True
        progress.note(verdict.rounds)
        if reason := _obstacle(verdict, progress.idle, resumption.most):
            say(f"job {current}: not resumed: {reason.rstrip('.')}.")
            return False
        progress.idle += 1
        current = _resume(server, resumption.job, run, verdict.rounds)
    return True


def _obstacle(verdict: "Verdict", idle: int, max_resumes: int) -> str:
    """Return why a run is not resumed; empty if it is."""
    if not verdict.resumable:
        return verdict.reason
    if idle >= max_resumes:
        return f"it was resumed {idle} times in a row without completing another round"
    return ""


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
