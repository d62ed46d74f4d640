# SPDX-License-Identifier: Apache-2.0
"""The sender of a message: the identity that FLARE authenticated, never the sender's own claim; and a task's origin.

The executor answers only tasks that FLARE's own loop fetched from the server (:class:`FetchedTasks`). That loop runs
the filters, and audit then sees the answer. There are two other ways to the executor: a component of the job can call
it and send the result to another site (``nvflare.app_common.ccwf``), and any participant of the job can send FLARE's
runner a task in a message (topic ``__do_task__``). Neither is a task of the workflow.

A fetched task is recognised as follows. FLARE fires ``AFTER_PULL_TASK`` in the same context in which its loop then does
the task, and the runner holds the task under its id meanwhile. Every other call has its own context.
"""

from typing import Any
from weakref import WeakSet

from nvflare.apis.client import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import EventScope, FLContextKey, ReservedKey, ReturnCode, ServerCommandKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable

from fdg_plugins.errors import ContributionError, one_line, shorten
from fdg_plugins.flare.internals import fetch

ASKING_SITE_PROP = "fdg_asking_site"
LONGEST_CODE = 50  # characters; the longest of FLARE's return codes has 24
LONGEST_ID = 200  # characters; FLARE's ids and references have 36, a name of a task has fewer


def authenticated_site(shareable: Shareable, fl_ctx: FLContext) -> str:
    """Return the name of the site that sent ``shareable``; raise ``ContributionError`` if there is none.

    FLARE's server sets a header with the client that owns the message's token. Without that header, the peer context
    is used, which travels with the message and gives the same name for an honest site.
    """
    headers = shareable if isinstance(shareable, Shareable) else Shareable()
    client, peer = headers.get_header(ServerCommandKey.FL_CLIENT), fl_ctx.get_peer_context() if fl_ctx else None
    name = client.name if isinstance(client, Client) else headers.get_peer_prop(ReservedKey.IDENTITY_NAME, None)
    name = name or (peer.get_identity_name() if peer else None)
    if not isinstance(name, str) or not name:
        raise ContributionError("A contribution came without the name of an authenticated site.")
    return name


def is_foreign_event(fl_ctx: FLContext) -> bool:
    """Return whether another participant sent the event: to the whole federation, under any name it likes."""
    return bool(fl_ctx.get_prop(FLContextKey.EVENT_SCOPE) == EventScope.FEDERATION)


def asking_site(fl_ctx: FLContext) -> str:
    """Return the authenticated name of the site that a filter is about to send a task to; empty if unknown."""
    name = fl_ctx.get_prop(ASKING_SITE_PROP)
    return name if isinstance(name, str) else ""


def mark_asking_sites(runner: Any) -> None:
    """Make every request for a task to ``runner``, FLARE's server runner, tell the filters which site asks.

    FLARE gives filters nothing but the peer context, in which a site can call itself anything; FLARE itself takes from
    there which site is still alive. So the name becomes that of the client that owns the request's token there too.
    """
    known = runner.process_task_request

    def process(client: Client, fl_ctx: FLContext) -> tuple[str, str, Shareable]:
        fl_ctx.set_prop(ASKING_SITE_PROP, client.name, private=True, sticky=False)
        _name_peer(fl_ctx, client.name)
        found: tuple[str, str, Shareable] = known(client, fl_ctx)
        return found

    runner.process_task_request = process


def correct_messages(engine: Any) -> None:
    """Make every message to ``engine``, FLARE's server engine, that is no task's bear its site's name.

    Such messages say that a site is alive, or ask whether a task still stands. The name becomes that of the client that
    owns the message's token, empty without one. Nothing is done in one process, which has no messages.
    """
    agent = getattr(getattr(engine, "server", None), "command_agent", None)
    if agent is None:
        return
    token_header, known = fetch("CellMessageHeaderKeys.TOKEN"), agent._aux_communicate

    def communicate(request: Any) -> Any:
        props = request.payload.get_peer_props() if isinstance(request.payload, Shareable) else None
        if isinstance(props, dict):
            client = agent._get_client(request.get_header(token_header, None))
            props[ReservedKey.IDENTITY_NAME] = "" if client is None else client.name
        return known(request)

    agent._aux_communicate = communicate


def correct_claims(runner: Any) -> None:
    """Make every answer to ``runner``, FLARE's server runner, bear its site's name, and nothing but words beside it.

    FLARE takes name, return code, names of task and workflow, and ids as the message has them, and writes them to its
    log, before the lines of the workflow among them, and to its audit. A return code that FLARE cannot have sent
    becomes that of an error; the others one printable line.
    """
    known = runner.process_submission

    def process(client: Client, task_name: str, task_id: str, result: Shareable, fl_ctx: FLContext) -> Any:
        _name_peer(fl_ctx, client.name)
        if isinstance(result, Shareable):
            code = result.get_return_code(ReturnCode.OK)
            if not (isinstance(code, str) and len(code) <= LONGEST_CODE and code.isascii() and code.isidentifier()):
                result.set_return_code(ReturnCode.EXECUTION_RESULT_ERROR)
            if (reference := result.get_header(ReservedHeaderKey.AUDIT_EVENT_ID)) is not None:
                result.set_header(ReservedHeaderKey.AUDIT_EVENT_ID, _printable(reference))
            if (workflow := result.get_cookie(ReservedHeaderKey.WORKFLOW)) is not None:
                result.add_cookie(ReservedHeaderKey.WORKFLOW, _printable(workflow))
        return known(client, _printable(task_name), _printable(task_id), result, fl_ctx)

    runner.process_submission = process


def _name_peer(fl_ctx: FLContext, name: str) -> None:
    """Give the peer in a context the name that its token has, and the id of this job, which FLARE logs too."""
    peer = fl_ctx.get_peer_context()
    if isinstance(peer, FLContext):
        peer.put(ReservedKey.IDENTITY_NAME, name, private=False, sticky=False)
        peer.put(ReservedKey.RUN_NUM, fl_ctx.get_job_id(), private=False, sticky=False)


def _printable(claim: Any) -> Any:
    """Return what a message says of itself, as one printable line; None stays None, as FLARE means nothing by it."""
    return None if claim is None else one_line(claim if isinstance(claim, str) else shorten(claim), LONGEST_ID)


class FetchedTasks:
    """Tracks the contexts in which FLARE's loop fetched a task that has not been done yet; each task counts once."""

    def __init__(self) -> None:
        # A set, because a remote participant can send events of this name, each with its own context.
        self._contexts: WeakSet[FLContext] = WeakSet()

    def observe(self, event_type: str, fl_ctx: FLContext) -> None:
        """Track the loop's events; call this with every event that the executor receives."""
        if event_type == EventType.AFTER_PULL_TASK:
            self._contexts.add(fl_ctx)
        elif event_type == EventType.BEFORE_PULL_TASK:
            self._contexts.discard(fl_ctx)

    def take(self, executor: Executor, task_name: str, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Return whether this is the first call of ``executor`` for the task that was fetched in ``fl_ctx``."""
        fetched = fl_ctx in self._contexts and _is_current(executor, task_name, shareable, fl_ctx)
        if fetched:
            self._contexts.discard(fl_ctx)
        return fetched


def _is_current(executor: Executor, task_name: str, shareable: Shareable, fl_ctx: FLContext) -> bool:
    runner = fl_ctx.get_prop(FLContextKey.RUNNER)
    assignment: Any = getattr(runner, "running_tasks", {}).get(fl_ctx.get_prop(FLContextKey.TASK_ID))
    return (
        assignment is not None
        and assignment.name == task_name
        and assignment.data is shareable
        and runner.find_executor(task_name) is executor
    )
