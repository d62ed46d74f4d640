# SPDX-License-Identifier: Apache-2.0
"""Server and sites of a job as objects of one process: FLARE's engines without cells, sockets and serialisation.

Tasks, results and messages are passed on by a call. Whoever receives one receives its own copy, as over the wire,
so neither end can change what the other holds. Events of the whole federation are not passed on: no job of this package
fires one.
"""

import copy
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import torch
from nvflare.apis.client import Client
from nvflare.apis.engine_spec import EngineSpec
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ProcessType, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.server_engine_spec import ServerEngineSpec
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.utils.event import fire_event_to_components
from nvflare.apis.workspace import Workspace

SERVER = "server"
MOMENT_S = 0.1

Handler = Callable[..., Shareable]

_UNCHANGING = frozenset({str, int, float, bool, bytes, type(None)})


@dataclass
class Assignment:
    """A task as FLARE's runner at a site reads it, and replaces its data by what the filters return."""

    name: str
    task_id: str
    data: Shareable


class LocalParty(EngineSpec):
    """What the engines of server and site have in common: what FLARE's runners and components ask their engine for.

    ``made`` is what FLARE's configurator has built of the job, from which ``runner`` makes FLARE's runner of an engine;
    ``stickers``: further public properties of every context.
    """

    process_type = ""
    is_local = True  # server and sites are in one process (``fdg_plugins.flare.context``)

    def __init__(
        self,
        name: str,
        job: str,
        workspace: Workspace,
        made: Any,
        meta: Mapping[str, Any],
        runner: Callable[..., Any],
        **stickers: Any,
    ) -> None:
        self.name = name
        self.handlers: list[FLComponent] = made.handlers
        self._workspace = workspace
        self._components: dict[str, Any] = made.components
        self._messages: dict[str, Handler] = {}
        private = {
            FLContextKey.JOB_META: meta,
            FLContextKey.JOB_SCOPE_NAME: "",
            FLContextKey.EFFECTIVE_JOB_SCOPE_NAME: "",
            FLContextKey.SCOPE_PROPERTIES: None,
            FLContextKey.SCOPE_OBJECT: None,
            FLContextKey.PROCESS_TYPE: self.process_type,
        }
        self._contexts = FLContextManager(self, name, job, stickers, private)
        self.runner = runner(made, job, self)
        self.add_handler(self.runner)
        with self.new_context() as fl_ctx:
            fl_ctx.set_prop(FLContextKey.RUNNER, self.runner, private=True)

    def new_context(self) -> FLContext:
        return self._contexts.new_context()

    def fire_event(self, event_type: str, fl_ctx: FLContext) -> None:
        silent = FLComponent.handle_event  # of most filters
        listening = [one for one in self.handlers if type(one).handle_event is not silent or one.get_event_handlers()]
        fire_event_to_components(event_type, listening, fl_ctx)

    def add_handler(self, handler: FLComponent) -> None:
        self.handlers.append(handler)

    def get_workspace(self) -> Workspace:
        return self._workspace

    def get_component(self, component_id: str) -> Any:
        return self._components.get(component_id)

    def nothing(self, *_: Any, **__: Any) -> None:
        """Do nothing: there are no widgets, no network, no streams and no other processes."""

    persist_components = shutdown_streamer = nothing

    def register_aux_message_handler(self, topic: str, message_handle_func: Handler) -> None:
        self._messages[topic] = message_handle_func

    def answer(self, topic: str, request: Shareable, peer: FLContext) -> Shareable:
        """Return the reply to a message of the participant whose public properties are in ``peer``."""
        handler = self._messages.get(topic)
        if handler is None:
            return make_reply(ReturnCode.TOPIC_UNKNOWN)
        with self.new_context() as fl_ctx:
            fl_ctx.set_peer_context(peer)
            request.set_peer_props(peer.get_all_public_props())
            return handler(topic=topic, request=request, fl_ctx=fl_ctx)


@ServerEngineSpec.register  # FLARE's runner asks for one; most of its methods are for clusters and networks
class LocalServer(LocalParty):
    """The server's engine; ``sites`` are added once they are built, ``local_tasks`` is what the workflow finds here."""

    process_type = ProcessType.SERVER_JOB
    register_app_command = sync_clients_from_main_process = LocalParty.nothing

    def __init__(self, *arguments: Any) -> None:
        self.sites: dict[str, LocalSite] = {}
        self.local_tasks: LocalTasks | None = None
        super().__init__(*arguments)

    def get_clients(self) -> list[Client]:
        return [site.client for site in self.sites.values()]

    def get_participating_clients(self) -> dict[str, Client]:
        return {name: site.client for name, site in self.sites.items()}

    def validate_targets(self, target_names: Sequence[str]) -> tuple[list[Client], list[str]]:
        known = [self.sites[name].client for name in target_names if name in self.sites]
        return known, [name for name in target_names if name not in self.sites]

    def send_aux_request(
        self, targets: Any, topic: str, request: Shareable, timeout: float, fl_ctx: FLContext, **_: Any
    ) -> dict[str, Shareable]:
        names = targets or list(self.sites)
        return {name: self.sites[name].answer(topic, copied(request), peer_of(fl_ctx)) for name in names}

    def hand_out(self, client: Client, peer: FLContext) -> tuple[Assignment, FLContext]:
        """Return the next task of a site, and the server's public properties with it."""
        with self.new_context() as fl_ctx:
            fl_ctx.set_peer_context(peer)
            name, task_id, data = self.runner.process_task_request(client, fl_ctx)
            data = copied(data) if data else Shareable()
            data.add_cookie(FLContextKey.TASK_ID, task_id)
            return Assignment(name, task_id, data), peer_of(fl_ctx)

    def take_in(self, client: Client, result: Shareable, peer: FLContext) -> None:
        """Process a site's result of a task."""
        with self.new_context() as fl_ctx:
            fl_ctx.set_peer_context(peer)
            name, task_id = result.get_header(ReservedKey.TASK_NAME), result.get_cookie(FLContextKey.TASK_ID)
            self.runner.process_submission(client, name, task_id, copied(result), fl_ctx)


class LocalSite(LocalParty):
    """A site's engine; ``shared_work`` does the tasks of all sites of the process."""

    process_type = ProcessType.CLIENT_JOB

    def __init__(self, server: LocalServer, shared_work: Any, name: str, *arguments: Any, **stickers: Any) -> None:
        self.client = Client(name, token="")
        self.shared_work = shared_work
        self._server = server
        super().__init__(name, *arguments, **stickers)

    def get_task_assignment(self, fl_ctx: FLContext, timeout: float | None = None) -> Assignment:
        """Fetch the site's next task from the server, with the events by which FLARE's own loop is recognised."""
        self.fire_event(EventType.BEFORE_PULL_TASK, fl_ctx)
        assignment, peer = self._server.hand_out(self.client, peer_of(fl_ctx))
        self.fire_event(EventType.AFTER_PULL_TASK, fl_ctx)
        fl_ctx.set_peer_context(peer)
        return assignment

    def send_task_result(self, result: Shareable, fl_ctx: FLContext, timeout: float | None = None) -> bool:
        self._server.take_in(self.client, result, peer_of(fl_ctx))
        return True

    def send_aux_request(
        self, targets: Any, topic: str, request: Shareable, timeout: float, fl_ctx: FLContext, **_: Any
    ) -> dict[str, Shareable]:
        return {SERVER: self._server.answer(topic, copied(request), peer_of(fl_ctx))}

    def validate_targets(self, target_names: Sequence[str]) -> tuple[list[Any], list[str]]:
        return [name for name in target_names if name == SERVER], [name for name in target_names if name != SERVER]


@dataclass
class LocalTasks:
    """The tasks that a workflow offers to the sites of its process, which do them while it waits; nobody polls.

    Each time it waits, the next of these sites fetches its task, does it and hands in the result (``do_next``). Only if
    all have had their turn and a task still stands are they asked again. If ``at_once`` sites work at a time, each does
    so in a thread, and the workflow waits until one is done, or for a moment, so that it notices a deadline. ``settle``
    lets the server notice at once which tasks have ended; ``interrupt`` lets a site give up what it does.
    """

    do_next: Callable[[str], None]
    settle: Callable[[], None]
    at_once: int = 1
    interrupt: Callable[[str], None] = lambda site: None
    _sites: tuple[str, ...] = ()
    _offered: deque[str] = field(default_factory=deque)
    _working: dict[str, Future[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        several = self.at_once > 1
        self._threads = ThreadPoolExecutor(self.at_once, thread_name_prefix="fdg-site") if several else None

    def turns(self, count: int) -> int:
        """Return how often sites work before all ``count`` of them have done so, at least 1."""
        return max(1, -(-count // self.at_once))

    def offer(self, sites: Iterable[str]) -> None:
        """Signal that there are tasks for ``sites``, and for no others any more."""
        self._sites = tuple(sites)
        self._offered = deque(self._sites)

    def wait(self, seconds: float) -> None:
        """Let the next sites do their tasks; if all have had their turn, wait so many seconds and begin anew."""
        if self._threads is not None and (self._offered or self._working):
            self._wait_for_one(self._threads)
        elif self._offered:
            self.do_next(self._offered.popleft())
        else:
            time.sleep(seconds)
            self._offered.extend(self._sites)
        self.settle()

    def end(self) -> None:
        """Signal that the workflow has ended; sites that still work give up."""
        if self._threads is not None:
            for site, future in self._working.items():
                if not future.done():
                    self.interrupt(site)
            self._threads.shutdown()
            self._working.clear()

    def _wait_for_one(self, threads: ThreadPoolExecutor) -> None:
        for site in [site for site in self._offered if site not in self._working]:
            if len(self._working) < self.at_once and site not in self._working:
                self._offered.remove(site)
                self._working[site] = threads.submit(self.do_next, site)
        done, _ = wait(self._working.values(), timeout=MOMENT_S, return_when=FIRST_COMPLETED)
        for site in [site for site, future in self._working.items() if future in done]:
            self._working.pop(site).result()


def peer_of(fl_ctx: FLContext) -> FLContext:
    """Return the context that the other end sees: a copy of the public properties."""
    peer = FLContext()
    peer.set_public_props(copied(fl_ctx.get_all_public_props()))
    return peer


def copied(value: Any) -> Any:
    """Return a copy that shares nothing with ``value``, as ``copy.deepcopy`` makes it, but in a fraction of its time.

    What is in two places of ``value`` is copied twice, as over the wire. Tensors are copied at once: a copy that torch
    makes on the first write is not safe where other threads, such as those of FLARE, may free or read the same memory.
    """
    kind = type(value)
    if kind in _UNCHANGING:
        return value
    if kind is torch.Tensor and not value.requires_grad:
        return value.clone()
    if kind is list:
        return [copied(item) for item in value]
    if kind is dict or (kind is Shareable and not vars(value)):
        new = kind()
        new.clear()
        new.update((key, copied(item)) for key, item in value.items())
        return new
    return copy.deepcopy(value)
