# SPDX-License-Identifier: Apache-2.0
"""Lets a lost site rejoin the jobs that are still running.

FLARE 2.9 deploys a job to the sites that are connected at its start and identifies them by their tokens at that time. A
site whose processes died and were restarted registers with a new token, and no running job ever learns about it.

The server's main process detects the return, makes the site a participant under its new token, and deploys and starts
the job there, as FLARE's ``JobRunner`` does at the start (:class:`ReturningSites`). The job's process loads the new
token on request (:func:`welcome_returning_sites`). The site's state of the run is in its workspace.
"""

import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from nvflare.apis.client import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import RunProcessKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import ALL_SITES, Job, JobMetaKey
from nvflare.apis.job_scheduler_spec import DispatchInfo
from nvflare.apis.shareable import ReturnCode, Shareable

from fdg_plugins.errors import LONGEST_QUOTE, one_line
from fdg_plugins.flare.context import names_in
from fdg_plugins.flare.internals import fetch

TOPIC = "fdg_site_returned"
TELL_TIMEOUT_S = 20.0


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """The site cannot rejoin and will not be asked again; the text says why."""


class Unanswered(Exception):  # noqa: N818 - not yet an answer
    """No answer came, or the site lacks resources; the site's next heartbeat triggers another attempt."""


class Return(NamedTuple):
    """A restarted site with a token that a running job does not know."""

    job: Job
    client: Client


class ReturningSites(FLComponent):
    """Restarts the running jobs at a returning site; a component of the server's main process.

    Heartbeats trigger it, because a site has no token yet when it registers. The work runs in a separate thread,
    because a heartbeat waits for its reply.
    """

    def __init__(self) -> None:
        super().__init__()
        self._settled: set[tuple[str, str]] = set()  # job and new token that were accepted or refused
        self._working = threading.Lock()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """At any site's heartbeat, check whether a site has returned that a running job had lost."""
        if event_type == EventType.CLIENT_HEARTBEAT_PROCESSED:
            engine = fl_ctx.get_engine()
            if self._to_do(engine) and self._working.acquire(blocking=False):
                threading.Thread(target=self._work, args=(engine,), name="fdg_rejoin", daemon=True).start()

    def _to_do(self, engine: Any) -> list[Return]:
        return [one for one in find_returns(engine) if (one.job.job_id, one.client.token) not in self._settled]

    def _work(self, engine: Any) -> None:
        try:
            for found in self._to_do(engine):
                self._take_back(engine, found)
        finally:
            self._working.release()

    def _take_back(self, engine: Any, found: Return) -> None:
        site, job = found.client.name, found.job.job_id
        try:
            start_again(engine, found)
        except Unanswered as unanswered:
            self.logger.warning(f"site {site} is back, but {unanswered}; job {job} is tried again at its next sign.")
            return
        except Exception as error:  # FLARE's own code, which may raise anything: the job must not wait for the site
            is_foreseen = isinstance(error, Refused)
            why = str(error) if is_foreseen else f"unforeseen {type(error).__name__}"
            text = f"site {site} is back, but takes no further part in job {job}: {why}"
            self.logger.error(text, exc_info=not is_foreseen)
            engine.notify_dead_job(job, site, why)
        else:
            self.logger.info(f"site {site} is back: job {job} was started there again")
        self._settled.add((job, found.client.token))


def find_returns(engine: Any) -> list[Return]:
    """Return the sites that are connected with a token other than the one that a running job knows."""
    connected = {client.name: client for client in engine.get_clients()}
    return [
        Return(job, connected[known.name])
        for job in list(engine.job_runner.running_jobs.values())
        for token, known in _participants(engine, job).items()
        if known.name in connected and connected[known.name].token != token and not job.run_aborted
    ]


def start_again(engine: Any, found: Return) -> None:
    """Make the site a participant of the job under its new token, and start the job there.

    Raises ``Refused`` or ``Unanswered``; the previous participants are restored on any error.
    """
    job, client = found
    # At the end of a job, FLARE waits for the outcome of the process that died. Resolve it now; the new process may or
    # may not report one. A returned site can therefore no longer make the job fail.
    engine.job_runner.resolve_client_outcome(job.job_id, client.name)
    before = _participants(engine, job)
    others = {token: known for token, known in before.items() if known.name != client.name}
    with ExitStack() as undo:
        undo.callback(_set_participants, engine, job, before)
        _set_participants(engine, job, {**others, client.token: client})
        # The job's process must know a token before the site uses it.
        reply = engine.send_app_command(job.job_id, TOPIC, {}, timeout=TELL_TIMEOUT_S)
        if not isinstance(reply, Shareable) or reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION:
            raise Unanswered("the job's process at the server did not answer")
        if reply.get_return_code(ReturnCode.OK) != ReturnCode.OK:
            raise Refused("the job's workflow takes no site back.")
        with engine.new_context() as fl_ctx:
            _start(engine, found, fl_ctx)
        undo.pop_all()


def _participants(engine: Any, job: Job) -> dict[str, Client]:
    return dict((engine.run_processes.get(job.job_id) or {}).get(RunProcessKey.PARTICIPANTS) or {})


def _set_participants(engine: Any, job: Job, participants: Mapping[str, Client]) -> None:
    process = engine.run_processes.get(job.job_id)
    if process is not None:
        process[RunProcessKey.PARTICIPANTS] = dict(participants)  # replaced as a whole, since other threads read it
    job.meta[JobMetaKey.JOB_CLIENTS] = [client.to_dict() for client in participants.values()]


def _start(engine: Any, found: Return, fl_ctx: FLContext) -> None:
    """Deploy the job to the site and start it there, as FLARE's scheduler and ``JobRunner`` do when a job starts."""
    job, site, token = found.job, found.client.name, found.client.token
    app = next(app for app, sites in job.get_deployment().items() if {site, ALL_SITES} & {*names_in(sites)})
    needed = fetch("get_resource_manager_spec")({**job.meta, JobMetaKey.RESOURCE_SPEC.value: job.resource_spec}, site)
    enough, reservation = engine.check_client_resources(job, {site: needed}, fl_ctx).get(site, (False, ""))
    if not enough:
        raise Unanswered(f"it lacks the resources ({one_line(str(reservation or 'no answer'), LONGEST_QUOTE)})")
    order = engine.job_runner._make_deploy_message(job, job.get_application(app, fl_ctx), app, fl_ctx)
    admin = engine.server.admin_server
    _check(admin.send_requests_and_get_reply_dict({token: order}, timeout_secs=admin.timeout).get(token), "deployment")
    started = engine.start_client_job(job, {site: DispatchInfo(app, needed, reservation)}, fl_ctx)
    _check(next((reply.reply for reply in started if reply.client_name == site), None), "start")


def _check(reply: Any, what: str) -> None:
    """Raise ``Unanswered`` if ``reply``, FLARE's reply to a command, is None; ``Refused`` if it is an error."""
    if reply is None:
        raise Unanswered(f"it did not answer the {what}")
    prefix, ok = fetch("ERROR_MSG_PREFIX"), fetch("ReturnCode.OK")
    failed = isinstance(reply.body, str) and reply.body.startswith(prefix)
    if failed or reply.get_header(fetch("MsgHeader.RETURN_CODE"), ok) != ok:
        raise Refused(f"its {what} failed: {one_line(str(reply.body).removeprefix(f'{prefix}: '), LONGEST_QUOTE)}")


def welcome_returning_sites(engine: Any) -> None:
    """Make the job's process at the server fetch the current tokens when the server's main process asks it to.

    A workflow calls this once, with its engine, before it asks any site.
    """

    def welcome(topic: str, data: Any, fl_ctx: FLContext) -> dict[str, Any]:
        fl_ctx.get_engine().sync_clients_from_main_process()
        return {}

    with suppress(RuntimeError):  # the simulator keeps commands registered by earlier jobs in this process
        engine.register_app_command(TOPIC, welcome)
