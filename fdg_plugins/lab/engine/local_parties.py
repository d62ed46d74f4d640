# SPDX-License-Identifier: Apache-2.0
"""Server and sites of a job as objects of one process: FLARE's engines without cells, sockets and serialisation.

FLARE's runners and components ask their engine for contexts, components, events and messages. These engines give them
the same, and pass tasks and results on by a call. Whoever receives a task or a result receives a copy of its own, as
over the wire, so neither end can change what the other holds.

Messages besides tasks reach the other end as a call, too. Events of the whole federation are not passed on: no job of
this package fires one.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
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

from fdg_plugins.flare.internals import fetch

SERVER = "server"

Handler = Callable[..., Shareable]

_UNCHANGING = frozenset({str, int, float, bool, bytes, type(None)})


class LocalParty(EngineSpec):
    """What the engines of server and site have in common.

    Args:
        name: the participant's name.
        job: id of the job.
        workspace: the participant's workspace.
        components: the job's components by id.
        handlers: those that receive events.
        meta: the job's meta.
        stickers: further public properties of every context.
    """

    process_type = ""
    is_local = True  # server and sites are in one process (``fdg_plugins.flare.simulator``)

    def __init__(
        self,
        name: str,
        job: str,
        workspace: Workspace,
        components: dict[str, Any],
        handlers: list[FLComponent],
        meta: Mapping[str, Any],
        stickers: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.handlers = handlers
        self._workspace = workspace
        self._components = components
        self._messages: dict[str, Handler] = {}
        private = {
            FLContextKey.JOB_META: meta,
            FLContextKey.JOB_SCOPE_NAME: "",
            FLContextKey.EFFECTIVE_JOB_SCOPE_NAME: "",
            FLContextKey.SCOPE_PROPERTIES: None,
            FLContextKey.SCOPE_OBJECT: None,
            FLContextKey.PROCESS_TYPE: self.process_type,
        }
        self._contexts = FLContextManager(self, name, job, dict(stickers or {}), private)

    def new_context(self) -> FLContext:
        """Return a new context with the sticky properties of the run."""
        return self._contexts.new_context()

    def fire_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Pass an event to the participant's own components."""
        fire_event_to_components(event_type, self.handlers, fl_ctx)

    def add_handler(self, handler: FLComponent) -> None:
        """Let a component receive events."""
        self.handlers.append(handler)

    def get_workspace(self) -> Workspace:
        """Return the participant's workspace."""
        return self._workspace

    def add_component(self, component_id: str, component: Any) -> None:
        """Add a component, by its id."""
        self._components[component_id] = component

    def get_component(self, component_id: str) -> Any:
        """Return a component of the job, None if there is none of this id."""
        return self._components.get(component_id)

    def get_all_components(self) -> dict[str, Any]:
        """Return the components by id."""
        return self._components

    def nothing(self, *_: Any, **__: Any) -> None:
        """Do nothing: there are no widgets, no network, no streams and no other processes."""

    get_widget = get_cell = persist_components = shutdown_streamer = nothing

    def register_aux_message_handler(self, topic: str, message_handle_func: Handler) -> None:
        """Let ``message_handle_func`` answer the messages of ``topic``."""
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
    """The server's engine; ``sites`` are added once they are built.

    ``local_tasks`` is what the workflow finds here (:class:`~fdg_plugins.lab.engine.local_tasks.LocalTasks`).
    """

    process_type = ProcessType.SERVER_JOB

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.runner: Any = None
        self.sites: dict[str, LocalSite] = {}
        self.local_tasks: Any = None

    def get_clients(self) -> list[Client]:
        """Return the sites."""
        return [site.client for site in self.sites.values()]

    def get_participating_clients(self) -> dict[str, Client]:
        """Return the sites by name."""
        return {name: site.client for name, site in self.sites.items()}

    def get_client_from_name(self, client_name: str) -> Client | None:
        """Return a site by name, None if there is none."""
        site = self.sites.get(client_name)
        return None if site is None else site.client

    def validate_targets(self, target_names: Sequence[str]) -> tuple[list[Client], list[str]]:
        """Return the sites of these names, and the names of which there are none."""
        known = [self.sites[name].client for name in target_names if name in self.sites]
        return known, [name for name in target_names if name not in self.sites]

    register_app_command = sync_clients_from_main_process = LocalParty.nothing

    def send_aux_request(
        self, targets: Any, topic: str, request: Shareable, timeout: float, fl_ctx: FLContext, **_: Any
    ) -> dict[str, Shareable]:
        """Return the replies of ``targets`` (None: all sites) to a message."""
        names = targets or list(self.sites)
        return {name: self.sites[name].answer(topic, copied(request), peer_of(fl_ctx)) for name in names}

    def hand_out(self, client: Client, peer: FLContext) -> tuple[Any, FLContext]:
        """Return the next task of a site as an assignment, and the server's public properties with it."""
        with self.new_context() as fl_ctx:
            fl_ctx.set_peer_context(peer)
            name, task_id, data = self.runner.process_task_request(client, fl_ctx)
            data = copied(data) if data else Shareable()
            data.add_cookie(FLContextKey.TASK_ID, task_id)
            assignment = fetch("TaskAssignment")(name, task_id, data)
            return assignment, peer_of(fl_ctx)

    def take_in(self, client: Client, result: Shareable, peer: FLContext) -> None:
        """Process a site's result of a task."""
        with self.new_context() as fl_ctx:
            fl_ctx.set_peer_context(peer)
            name, task_id = result.get_header(ReservedKey.TASK_NAME), result.get_cookie(FLContextKey.TASK_ID)
            self.runner.process_submission(client, name, task_id, copied(result), fl_ctx)


class LocalSite(LocalParty):
    """A site's engine.

    ``shared_work`` does the tasks of all sites of the process; executors find it here.
    """

    process_type = ProcessType.CLIENT_JOB

    def __init__(self, server: LocalServer, shared_work: Any, name: str, *arguments: Any) -> None:
        super().__init__(name, *arguments)
        self.client = Client(name, token="")
        self.runner: Any = None
        self.shared_work = shared_work
        self._server = server

    def get_task_assignment(self, fl_ctx: FLContext, timeout: float | None = None) -> Any:
        """Fetch the site's next task from the server, with the events by which FLARE's own loop is recognised."""
        self.fire_event(EventType.BEFORE_PULL_TASK, fl_ctx)
        assignment, peer = self._server.hand_out(self.client, peer_of(fl_ctx))
        self.fire_event(EventType.AFTER_PULL_TASK, fl_ctx)
        fl_ctx.set_peer_context(peer)
        return assignment

    def send_task_result(self, result: Shareable, fl_ctx: FLContext, timeout: float | None = None) -> bool:
        """Hand a result to the server."""
        self._server.take_in(self.client, result, peer_of(fl_ctx))
        return True

    def send_aux_request(
        self, targets: Any, topic: str, request: Shareable, timeout: float, fl_ctx: FLContext, **_: Any
    ) -> dict[str, Shareable]:
        """Return the server's reply to a message, which is for no other participant."""
        return {SERVER: self._server.answer(topic, copied(request), peer_of(fl_ctx))}

    def validate_targets(self, target_names: Sequence[str]) -> tuple[list[Any], list[str]]:
        """Return the server, if it is named, and all other names."""
        return [name for name in target_names if name == SERVER], [name for name in target_names if name != SERVER]


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
