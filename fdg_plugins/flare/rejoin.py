# SPDX-License-Identifier: Apache-2.0
"""A site that was lost comes back, and takes part again in the jobs that still run.

FLARE 2.9 deploys a job to the sites that are there at its start, and knows them by the tokens of that moment: a site
whose processes died and were started again registers with a new token, and no running job ever hears of it.

Two processes of the server have a part. Its own process finds the return, makes the site a participant under its new
token, and deploys and starts the job there as FLARE's ``JobRunner`` does at the start (:class:`ReturningSites`). The
process of the job takes the new token when it is told to (:func:`welcome_returning_sites`), after which the workflow
may ask the site as if it had never been away. What the site remembers of a run lies in its workspace, and is there.

All this uses FLARE's internals, which is why FLARE's version is pinned. One that is gone ends in a line of the log.
"""

import logging
import operator
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import RunProcessKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import ALL_SITES, Job, JobMetaKey
from nvflare.apis.job_scheduler_spec import DispatchInfo
from nvflare.apis.shareable import ReturnCode, Shareable

from fdg_plugins.flare.internals import REJOIN, fetch

TOPIC = "fdg_site_returned"
TELL_TIMEOUT_S = 20.0

PARENT_INTERNALS = (
    "check_client_resources",
    "get_clients",
    "job_runner._make_deploy_message",
    "job_runner.resolve_client_outcome",
    "job_runner.running_jobs",
    "new_context",
    "notify_dead_job",
    "run_processes",
    "send_app_command",
    "server.admin_server.send_requests_and_get_reply_dict",
    "start_client_job",
)
JOB_INTERNALS = ("register_app_command", "sync_clients_from_main_process")

_logger = logging.getLogger(__name__)


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """The site cannot take part again, and will not be asked again; the text says why."""


class Unanswered(Exception):  # noqa: N818 - not yet an answer
    """Nobody has answered; the next heartbeat of the site is the next occasion."""


@dataclass(frozen=True)
class Return:
    """A site that runs again, under a token that a running job does not know."""

    job: Job
    client: Client

    @property
    def key(self) -> tuple[str, str]:
        """The job and the site's new token: what is tried once, or until somebody answers."""
        return self.job.job_id, self.client.token


class ReturningSites(FLComponent):
    """Starts the running jobs again at a site that comes back; a component of the server's own process.

    A heartbeat is the occasion: at the registration the site has no token yet. The work is done in a thread of
    its own, since the heartbeat waits for its reply.
    """

    def __init__(self) -> None:
        super().__init__()
        self._settled: set[tuple[str, str]] = set()
        self._working = threading.Lock()
        self._disabled = False

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Look, at a heartbeat of any site, whether one is back that a running job has lost."""
        if event_type != EventType.CLIENT_HEARTBEAT_PROCESSED or self._disabled:
            return
        engine = fl_ctx.get_engine()
        if absent := missing_internals(engine, PARENT_INTERNALS):
            self._disabled = True
            self.logger.error(f"This FLARE has no {', '.join(absent)}: a site that comes back joins no running job.")
            return
        if self._to_do(engine) and self._working.acquire(blocking=False):
            threading.Thread(target=self._work, args=(engine,), name="fdg_rejoin", daemon=True).start()

    def _to_do(self, engine: Any) -> list[Return]:
        return [found for found in find_returns(engine) if found.key not in self._settled]

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
        except Refused as refused:
            self.logger.error(f"site {site} is back, but takes no further part in job {job}: {refused}")
            engine.notify_dead_job(job, site, str(refused))
        except Exception as error:
            self.logger.exception(f"site {site} is back, but takes no further part in job {job}: unforeseen error")
            engine.notify_dead_job(job, site, type(error).__name__)
        else:
            self.logger.info(f"site {site} is back: job {job} was started there again")
        self._settled.add(found.key)


def missing_internals(engine: Any, names: tuple[str, ...]) -> list[str]:
    """Return those of the attributes, dotted ones included, that FLARE's engine does not have."""
    absent = []
    for name in names:
        try:
            operator.attrgetter(name)(engine)
        except AttributeError:
            absent.append(name)
    return absent


def find_returns(engine: Any) -> list[Return]:
    """Return the sites that are connected under another token than the one by which a running job knows them."""
    connected = {client.name: client for client in engine.get_clients()}
    found = []
    for job in list(engine.job_runner.running_jobs.values()):
        for token, known in _participants(engine, job).items():
            client = connected.get(known.name)
            if client is not None and client.token != token and not job.run_aborted:
                found.append(Return(job, client))
    return found


def start_again(engine: Any, found: Return) -> None:
    """Make the site a participant of the job under its new token, and start the job there.

    Raises ``Refused`` or ``Unanswered``; whatever it raises, the participants are then those of before.
    """
    job, client = found.job, found.client
    # What FLARE waits for at the end of a job is the word of the process that died. That of the new one may come or
    # not: a site that came back can no longer make the job fail.
    engine.job_runner.resolve_client_outcome(job.job_id, client.name)
    before = _participants(engine, job)
    others = {token: known for token, known in before.items() if known.name != client.name}
    with ExitStack() as undo:
        undo.callback(_set_participants, engine, job, before)
        _admit(engine, job, {**others, client.token: client})
        with engine.new_context() as fl_ctx:
            _start(engine, found, fl_ctx)
        undo.pop_all()


def _participants(engine: Any, job: Job) -> dict[str, Client]:
    """Return the job's clients by token; none if its process has ended."""
    process = engine.run_processes.get(job.job_id) or {}
    return dict(process.get(RunProcessKey.PARTICIPANTS) or {})


def _set_participants(engine: Any, job: Job, participants: Mapping[str, Client]) -> None:
    process = engine.run_processes.get(job.job_id)
    if process is not None:
        process[RunProcessKey.PARTICIPANTS] = dict(participants)  # replaced whole: others read it meanwhile
    job.meta[JobMetaKey.JOB_CLIENTS] = [client.to_dict() for client in participants.values()]


def _admit(engine: Any, job: Job, participants: Mapping[str, Client]) -> None:
    """Let the job's process at the server take over the participants; it must know a token before it is used."""
    _set_participants(engine, job, participants)
    reply = engine.send_app_command(job.job_id, TOPIC, {}, timeout=TELL_TIMEOUT_S)
    if not isinstance(reply, Shareable) or reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION:
        raise Unanswered("the job's process at the server did not answer")
    if reply.get_return_code(ReturnCode.OK) != ReturnCode.OK:
        raise Refused("the job's workflow takes no site back.")


def _start(engine: Any, found: Return, fl_ctx: FLContext) -> None:
    """Deploy the job to the site and start it there, as FLARE's scheduler and ``JobRunner`` do at the start."""
    job, site = found.job, found.client.name
    app = next((app for app, sites in job.get_deployment().items() if _is_for(site, sites)), None)
    if app is None:
        raise Refused("the job is not for it.")
    needed = fetch(REJOIN, "get_resource_manager_spec")(
        {**job.meta, JobMetaKey.RESOURCE_SPEC.value: job.resource_spec}, site
    )
    enough, reservation = engine.check_client_resources(job, {site: needed}, fl_ctx).get(site, (False, ""))
    if not enough:
        raise Unanswered(f"it has not the resources ({reservation or 'no answer'})")
    order = engine.job_runner._make_deploy_message(job, job.get_application(app, fl_ctx), app, fl_ctx)
    admin = engine.server.admin_server
    deployed = admin.send_requests_and_get_reply_dict({found.client.token: order}, timeout_secs=admin.timeout)
    _check(deployed.get(found.client.token), "deployment")
    dispatch = {site: DispatchInfo(app, needed, reservation)}
    replies = {reply.client_name: reply.reply for reply in engine.start_client_job(job, dispatch, fl_ctx)}
    _check(replies.get(site), "start")


def _is_for(site: str, sites: Any) -> bool:
    return any(name in (site, ALL_SITES) for name in fetch(REJOIN, "extract_participants")(sites))


def _check(reply: Any, what: str) -> None:
    """Raise ``Unanswered`` if FLARE's message ``reply`` to an order did not come, ``Refused`` if it is an error."""
    if reply is None:
        raise Unanswered(f"it did not answer the {what}")
    prefix, ok = fetch(REJOIN, "ERROR_MSG_PREFIX"), fetch(REJOIN, "ReturnCode.OK")
    failed = isinstance(reply.body, str) and reply.body.startswith(prefix)
    if failed or reply.get_header(fetch(REJOIN, "MsgHeader.RETURN_CODE"), ok) != ok:
        raise Refused(f"its {what} failed: {str(reply.body).removeprefix(f'{prefix}: ')}")


def welcome_returning_sites(engine: Any) -> None:
    """Let the job's process at the server take back a site, when the server's own process tells it to.

    A workflow calls this once, with its engine, before it asks any site.
    """
    if absent := missing_internals(engine, JOB_INTERNALS):
        _logger.warning(f"This FLARE has no {', '.join(absent)}: a site that comes back cannot join the job again.")
        return
    with suppress(RuntimeError):  # the simulator keeps the commands of the jobs that it ran before in this process
        engine.register_app_command(TOPIC, _welcome)


def _welcome(topic: str, data: Any, fl_ctx: FLContext) -> dict[str, Any]:
    """Fetch the participants from the server's own process, with the tokens that they have now."""
    fl_ctx.get_engine().sync_clients_from_main_process()
    return {}
