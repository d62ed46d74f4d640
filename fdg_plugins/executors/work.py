# SPDX-License-Identifier: Apache-2.0
"""One task of a site, from order to outcome, without FLARE: the same in FLARE's process and in a separate one."""

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from fdg_plugins.errors import DataError, FDGError, SettingsError, Stopped
from fdg_plugins.executors.counted import (
    LEFT_OUT,
    check_counted,
    check_process,
    counted_in,
    keep_counted,
    versions_of,
)
from fdg_plugins.messages import (
    TASK_CENSUS,
    TASK_EVALUATE,
    TASK_PROBE,
    TASK_STATISTICS,
    TASK_TRAIN,
    CensusRequest,
    FixedPart,
    TaskRequest,
)
from fdg_plugins.plans.uses import names_in
from fdg_plugins.plugins.admission import admit
from fdg_plugins.privacy.reasons import texts_of
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.state.site_memory import clear_memory, has_memory, read_fixed, read_kept, write_fixed, write_kept
from fdg_plugins.storage import named_path
from fdg_plugins.training.loop import ShouldStop
from fdg_plugins.values import shorten

if TYPE_CHECKING:
    from fdg_plugins.data import SharedDomains
    from fdg_plugins.training.networks import SharedNetworks
    from fdg_plugins.training.session import SiteSession

Say = Callable[[str], None]
Tensors = dict[str, torch.Tensor]


class RequestError(SettingsError):
    """The server's task is invalid. The text quotes only what the server sent, so all of it may leave the site."""

    def __init__(self, text: str) -> None:
        super().__init__(text, public=True)


@dataclass(frozen=True)
class SiteTask:
    """One task for a site.

    ``request``: the request as a JSON value. ``round_number``: counted from 0. ``state``: the global model.
    ``received``: the tensors sent with it. ``job``: id of the job that asks. ``custom``: folder of the code that the
    job brought, searched only for plug-ins that the protocol names.
    """

    task: str
    site: str
    request: Any
    round_number: int = 0
    state: Tensors = field(default_factory=dict)
    received: Tensors = field(default_factory=dict)
    job: str = ""
    custom: str = ""


@dataclass(frozen=True)
class TaskResult:
    """The result of an order.

    If ``ok``: a JSON value (NaN allowed) and named groups of tensors. If ``failed``: ``reason`` is one sentence for
    the site's log, ``public`` is the part that may leave the site, and ``trace`` is the traceback of an unexpected
    error. ``stand_in``: whether the site uses stand-in images instead of real data; None if unknown.
    """

    kind: Literal["ok", "failed", "aborted"]
    value: Any = None
    tensors: dict[str, Tensors] = field(default_factory=dict)
    reason: str = ""
    public: str = ""
    trace: str = ""
    stand_in: bool | None = None


def failure_of(error: Exception, stand_in: bool | None = None) -> TaskResult:
    """Return the outcome of an order whose work raised ``error``; call this while the error is being handled."""
    reason, public = texts_of(error)
    trace = "" if isinstance(error, FDGError) else traceback.format_exc()
    return TaskResult("failed", reason=reason, public=public, trace=trace, stand_in=stand_in)


class SiteWork:
    """Does tasks in this process, and keeps the data open between tasks. Holds no state that must persist.

    ``shared``: for the tasks of many sites, what their sessions share; the data of all sites then stay open.
    """

    def __init__(self, shared: "SharedDomains | None" = None) -> None:
        self._shared = shared
        self._sessions: dict[str, SiteSession] = {}  # by site
        self._session: SiteSession | None = None  # that of the current task
        self._networks: SharedNetworks | None = None
        self._compared: set[tuple[str, str]] = set()  # sites and jobs whose census is that of this process
        self._threads = torch.get_num_threads()  # of a site that has no number of its own

    def do_work(
        self, order: SiteTask, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say
    ) -> TaskResult:
        """Return the outcome of ``order``; never raise an ``Exception``.

        ``folder`` holds the run's state at the site. ``say`` receives each log line. Once ``should_stop()`` is true,
        the work ends within one batch as ``aborted``.
        """
        if self._networks is not None:
            self._networks.take_back()  # those of the last task
        try:
            value, tensors = self._do(order, config, folder, should_stop, say)
        except Stopped:
            return TaskResult("aborted", stand_in=self._stand_in())
        except Exception as error:  # noqa: BLE001 - tell the server that it failed, keep the site running
            return failure_of(error, self._stand_in())
        return TaskResult("ok", value, tensors, stand_in=self._stand_in())

    def _do(
        self, order: SiteTask, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say
    ) -> tuple[Any, dict[str, Tensors]]:
        if order.task == TASK_CENSUS:
            return self._census(order, config, folder, should_stop, say), {}
        session = self._resume(order, config, folder)
        check_role(config, order.task, held_out=session.images.domain == session.protocol.target)
        if order.task not in _WORK:
            raise RequestError(f"unknown task {order.task!r}.")
        return _WORK[order.task](session, _with_fixed_part(order, folder), folder, should_stop, say)

    def _census(
        self, order: SiteTask, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say
    ) -> dict[str, Any]:
        request = CensusRequest.read(order.request, "census request", RequestError)
        admit_plugins(order, request.protocol, config)
        session = self._open(order.site, config, request.protocol)
        if session.images.stand_in:
            admit_plugins(order, request.stand_in_protocol, config)
            session = self._open(order.site, config, request.stand_in_protocol)
        if not request.goes_on:
            clear_memory(folder)
        reply = session.census(should_stop)
        reply = reply.model_copy(update={"keeps_state": has_memory(folder), "versions": versions_of(session)})
        keep_counted(folder, order.job, reply, session.images.left_out)
        self._compared.add((order.site, order.job))
        from fdg_plugins.training.census_lines import census_lines

        for line in census_lines(session, reply):
            say(_line(session, line))
        return reply.model_dump(mode="json")

    def _resume(self, order: SiteTask, config: SiteConfig, folder: Path) -> "SiteSession":
        """Return the session for the protocol in a task, on the same data that this job's census counted.

        Raises ``DataError`` if the data changed since the census, ``SettingsError`` if the site's versions or precision
        did, and for a request that is not allowed.
        """
        request = TaskRequest.read(order.request, "task request", RequestError)
        counted = counted_in(folder, order.job)
        admit_plugins(order, request.protocol, config)
        session = self._open(order.site, config, request.protocol, frozenset(counted.get(LEFT_OUT, ())))
        if session.images.stand_in != request.stand_in:
            raise DataError(
                "the data changed between the real data set and the STAND-IN since the census.", public=True
            )
        check_counted(session, counted)
        if (order.site, order.job) not in self._compared:
            check_process(session, counted)
            self._compared.add((order.site, order.job))
        return session

    def _open(
        self, site: str, config: SiteConfig, protocol: Protocol, left_out: frozenset[str] = frozenset()
    ) -> "SiteSession":
        # Imported only by the process that does the work: FLARE's own process needs no data, models or methods.
        from fdg_plugins.training.networks import SharedNetworks
        from fdg_plugins.training.session import SiteSession

        threads = self._threads if config.threads is None else config.threads
        if torch.get_num_threads() != threads:  # those of another site of this process
            torch.set_num_threads(threads)
        opened = self._sessions.pop(site, None)
        if opened is None or (opened.config, opened.protocol, opened.images.left_out) != (config, protocol, left_out):
            self._session = opened
            if self._shared is not None:
                self._networks = self._networks or SharedNetworks()
            cache = named_path("FDG_CACHE", os.environ)
            opened = SiteSession(site, config, protocol, cache, left_out, self._shared, self._networks)
        if self._shared is None:
            self._sessions.clear()
        self._session = self._sessions[site] = opened
        return opened

    def _stand_in(self) -> bool | None:
        return None if self._session is None else self._session.images.stand_in


def _statistics(
    session: "SiteSession", order: SiteTask, folder: Path, should_stop: ShouldStop, say: Say
) -> tuple[dict[str, Any], dict[str, Tensors]]:
    found = session.statistics(order.state, should_stop, read_kept(folder, order.round_number).personal)
    return {}, {"statistics": found}


def _probe(
    session: "SiteSession", order: SiteTask, folder: Path, should_stop: ShouldStop, say: Say
) -> tuple[dict[str, Any], dict[str, Tensors]]:
    report = session.probe(order.state, should_stop, read_kept(folder, order.round_number).personal)
    return {"count": len(session.data.train)}, {"report": report}


def _train(
    session: "SiteSession", order: SiteTask, folder: Path, should_stop: ShouldStop, say: Say
) -> tuple[dict[str, Any], dict[str, Tensors]]:
    protocol = session.protocol
    epochs = protocol.local_epochs + session.objective.more_epochs

    def on_epoch(epoch: int, loss: float) -> None:
        where = f"round {order.round_number + 1}/{protocol.rounds} | epoch {epoch + 1}/{epochs}"
        say(_line(session, f"{where} | train loss {loss:.4f}"))

    number = order.round_number
    result = session.train(order.state, number, should_stop, on_epoch, order.received, read_kept(folder, number))
    write_kept(folder, number, result.kept)
    report = result.report.model_copy(update={"keeps_state": has_memory(folder)})
    value = {"samples": len(session.data.train), "report": report}
    return value, {"update": result.update, "report": result.tensors}


def _evaluate(
    session: "SiteSession", order: SiteTask, folder: Path, should_stop: ShouldStop, say: Say
) -> tuple[dict[str, Any], dict[str, Tensors]]:
    split: Literal["test", "validation"] = "test" if session.images.domain == session.protocol.target else "validation"
    # The site does not train in this round, or already has: use what it kept of its last training.
    kept = read_kept(folder, order.round_number + 1)
    value = session.evaluate(session.load(order.state, kept.personal), split, should_stop).model_dump(mode="python")
    if split == "validation" and session.objective.personalises:
        own = session.evaluate_own(
            order.state, order.round_number, should_stop, order.received, kept.memory, kept.personal
        )
        value["personal"] = own.model_dump(mode="python")
    return value, {}


_WORK = {TASK_STATISTICS: _statistics, TASK_PROBE: _probe, TASK_TRAIN: _train, TASK_EVALUATE: _evaluate}


def admit_plugins(order: SiteTask, protocol: Protocol, config: SiteConfig) -> None:
    """Check that the site's operator allows the plug-ins that the protocol names; load the files that the job brought.

    Raises ``SettingsError`` for any other plug-in, before loading any of it.
    """
    admit(names_in(protocol), protocol.plugins, Path(order.custom) if order.custom else None, config.allowed_plugins)


def _with_fixed_part(order: SiteTask, folder: Path) -> SiteTask:
    """Return an order with the whole model: keep the part that is sent once, or add what was kept of it."""
    if (value := order.request.get("fixed")) is None:
        return order
    fixed = FixedPart.read(value, "task request", RequestError)
    if not fixed.names:
        return replace(order, state={**read_fixed(folder, fixed.id), **order.state})
    if missing := [name for name in fixed.names if name not in order.state]:
        raise RequestError(f"the server sent no {shorten(missing[0])}, which it says is in the model.")
    write_fixed(folder, fixed.id, {name: order.state[name] for name in fixed.names})
    return order


def check_role(config: SiteConfig, task: str, *, held_out: bool) -> None:
    """Raise ``SettingsError`` if the site's operator forbids ``task`` for it, regardless of the server's protocol.

    ``held_out``: whether the protocol holds out the site's domain.
    """
    trains = task in (TASK_STATISTICS, TASK_PROBE, TASK_TRAIN)
    if (what := _FORBIDDEN.get((config.role, trains, held_out))) is not None:
        raise SettingsError(f"the site accepts only the role {config.role!r} and {what}.", public=True)


# By the role that a site accepts, whether a task trains, and whether the protocol holds out the site's domain.
_FORBIDDEN: dict[tuple[str | None, bool, bool], str] = {
    ("held_out", True, True): "never trains",
    ("held_out", True, False): "never trains",
    ("held_out", False, False): "is not judged as a source",
    ("source", True, True): "is not judged as held out",
    ("source", False, True): "is not judged as held out",
}


def mark(stand_in: bool | None) -> str:
    """Return the prefix for log lines about stand-in images; empty for real data."""
    return "STAND-IN | " if stand_in else ""


def _line(session: "SiteSession", text: str) -> str:
    return f"{mark(session.images.stand_in)}site {session.site} | {text}"
