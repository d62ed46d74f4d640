# SPDX-License-Identifier: Apache-2.0
"""``fdg submit``: submit a job, follow it to its end, and resume it when one of its processes dies."""

import math
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from nvflare.apis.job_def import RunStatus
from typer import Argument, Option

from fdg_plugins.cli.console import FAILED, INTERRUPTED, say, warn
from fdg_plugins.cli.jobs import write_resuming_job
from fdg_plugins.errors import DataError
from fdg_plugins.flare.sessions import POLL_S, Server
from fdg_plugins.lab.engine.workflow import arguments_of, find_workflow, sites_of
from fdg_plugins.record.run_files import RESULTS_FILE
from fdg_plugins.storage import read_json

ABORTED = "the job was aborted while it waited for"  # logged by our workflow when FLARE ends the job
ABSENT = "of the job's deploy_map does not take part"  # by our census: a site was not there when the job started
PASSING = (ABSENT, " cannot take part: ", " still goes on in another job")  # what another try may find changed
# In the log of a job that left no record: why our part ended it, or what the server does not allow.
STOPPED = re.compile(r"(?: - ERROR - .*?\bstopped|ComponentNotAuthorized: component not authorized): (.+)")
SERVER_TIMEOUT_S = 60.0  # a login of a busy server takes many seconds
PATIENCE_S = 300.0  # how long a server may be unreachable before a job is no longer followed
LOST_S = 300.0  # how long a job that has ended may count as running, while the server archives its results
SITES_S = 120.0  # how long a resumed job waits for its sites to reconnect to a restarted server

COMPLETED = str(RunStatus.FINISHED_COMPLETED.value)
DIED = (str(RunStatus.FINISHED_EXECUTION_EXCEPTION.value), str(RunStatus.FINISHED_ABNORMAL.value))
MAX_RESUMES = 10  # in a row that are not known to have completed a further round


class Ending(NamedTuple):
    """The end of a job: FLARE's status; ``lost`` if the server was restarted and only its list still has the job."""

    status: str
    lost: bool = False


class Verdict(NamedTuple):
    """Why an incomplete job may not be resumed (empty: it may), its complete rounds, whether its run had finished."""

    because: str = ""
    rounds: int | None = None
    finished: bool = False


def is_running(system: Any, job: str) -> bool:
    """Return whether the server has a process for the job; a status of RUNNING does not imply that."""
    return job in {running.job_id for running in system.job_info}


def follow(server: Server, job: str, tell: Callable[[str], None]) -> Ending:
    """Wait for a job to end and return how it ended; ``tell`` receives a line for each change of its status.

    A server that was restarted goes on listing a job as running that it does not run any more.
    """
    shown, started, idle_since = "", None, math.inf
    while True:
        status, system = server.status(job, PATIENCE_S)
        if status != shown:
            tell(f"job {job}: {status}")
            shown = status
        if status.startswith("FINISHED"):
            return Ending(status)
        start, now = system.server_info.start_time, time.monotonic()
        is_in_hand = status == RunStatus.SUBMITTED.value or is_running(system, job)
        idle_since = math.inf if is_in_hand else min(idle_since, now)
        # It may have been restarted before the first look at the job.
        if now >= idle_since + (LOST_S if started in (None, start) else 0.0):
            tell(f"job {job}: the server was restarted and does not run it any more, though it still lists it so")
            return Ending(status, lost=True)
        started = start
        time.sleep(POLL_S)


def warn_of_missing(server: Server, job: Path, patience: float = 0.0) -> None:
    """Warn of sites of ``job`` that are not connected, as soon as none is missing or after ``patience`` seconds.

    Without patience, a server that is away is not waited for either.
    """
    deadline, sites = time.monotonic() + patience, set(sites_of(job))
    while True:
        system = server.ask(lambda session: session.get_system_info(), PATIENCE_S if patience else 0.0)
        missing = ", ".join(sorted(sites - {client.name for client in system.client_info}))
        if not missing or time.monotonic() >= deadline:
            break
        time.sleep(POLL_S)
    if missing:
        warn(f"{missing} not connected to the server; only an evaluation of finished models does without some sites.")


def judge(server: Server, job: str, ending: Ending, is_first: bool) -> Verdict:
    """Return whether an incomplete job ended because a process died, so that its run can be resumed.

    ``is_first``: it is the job that started the run.
    """
    if ending.status == RunStatus.FINISHED_ABORTED.value:
        return Verdict("it was aborted by a person")
    if ending.status not in DIED and not ending.lost:
        return Verdict(f"it never ran ({ending.status})")
    record = None if ending.lost else _read_record(server, job)
    if record is None:
        return Verdict()
    rounds, status, because = record.get("rounds"), record.get("status"), str(record.get("stopped_because") or "")
    complete = len(rounds) if isinstance(rounds, list) else 0
    if status == "finished":
        return Verdict(rounds=complete, finished=True)
    if status == "stopped" and not because.startswith(ABORTED) and (is_first or not any(map(because.count, PASSING))):
        return Verdict(f"its run stopped by itself: {because}", complete)
    if not complete and (is_first or rounds is not None):  # an earlier job may have a round unless the number is known
        return Verdict("it has no complete round to go on from; the server's log says why", 0)
    return Verdict(rounds=complete or None)


def _read_record(server: Server, job: str) -> dict[str, Any] | None:
    """Return the record of a job that has ended, or only why it stopped if it left none; None if it cannot be read."""
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
        try:
            place = Path(server.ask(lambda session: session.download_job_result(job, destination=folder)))
            if found := sorted(place.rglob(RESULTS_FILE)):
                return dict(read_json(found[0]))
            logs = [file.read_text(encoding="utf-8", errors="replace") for file in place.glob("workspace/log.txt")]
            reasons = STOPPED.findall("".join(logs))
            return {"status": "stopped", "stopped_because": reasons[-1]} if reasons else {}
        except (DataError, TypeError, ValueError):  # a TypeError if FLARE returns no folder
            return None


def submit(
    job: Annotated[Path, Argument(help="The job folder, such as jobs/pacs_fedomg.")],
    kit: Annotated[Path, Argument(help="The startup kit of the person who submits: it holds startup/.")],
    resume_on_failure: Annotated[bool, Option("--resume-on-failure", help="Go on when a process has died.")] = False,
) -> int:
    """Submit a job that brings no code, and follow it to its end.

    With --resume-on-failure, a job that ended because one of its processes died, at the server or at a site, continues
    in another job after its last complete round. One that a user aborted, or that stopped by itself, does not.

    Exit codes: 0 the job completed, 1 it did not, 2 it could not be submitted or followed.

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
                completed = _followed(server, first)
        except KeyboardInterrupt:
            say("no longer followed; the job goes on at the server", on_stderr=True)
            return INTERRUPTED
    return 0 if completed else FAILED


def _followed(server: Server, job: str) -> bool:
    """Follow a job to its end, and say why its run stopped if it did; return whether the job completed."""
    ending = follow(server, job, say)
    record = None if ending.lost or ending.status == COMPLETED else _read_record(server, job)
    if record and (because := record.get("stopped_because")):
        say(f"job {job}: its run stopped: {because}")
    return ending.status == COMPLETED


def _carry_through(server: Server, first: str, job: Path, run: str) -> bool:
    """Follow job ``first``, and those that resume its run, to the end; return whether the last one completed."""
    current, idle, complete = first, 0, 0
    while (ending := follow(server, current, say)).status != COMPLETED:
        because, rounds, finished = judge(server, current, ending, is_first=current == run)
        if finished:
            say(f"job {current}: it broke off after its run had finished; the results are complete")
            return True
        idle = 0 if (rounds or 0) > complete else idle
        complete = max(complete, rounds or 0)
        if idle >= MAX_RESUMES and not because:
            because = f"it was resumed {idle} times in a row without completing another round"
        if because:
            say(f"job {current}: not resumed: {because.rstrip('.')}.")
            return False
        idle += 1
        warn_of_missing(server, job, SITES_S)
        with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
            current = server.submit(write_resuming_job(job, Path(folder), run), PATIENCE_S)
        say(f"job {current}: submitted; it resumes run {run}{f' after round {rounds}' if rounds else ''}")
    return True
