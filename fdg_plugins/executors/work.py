# SPDX-License-Identifier: Apache-2.0
"""One task of a site, from order to outcome, without FLARE: the same in FLARE's process and in a separate one."""

import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from fdg_plugins.errors import DataError, FDGError, SettingsError, Stopped
from fdg_plugins.messages import (
    TASK_CENSUS,
    TASK_EVALUATE,
    TASK_PROBE,
    TASK_STATISTICS,
    TASK_TRAIN,
    CensusReply,
    CensusRequest,
    FixedPart,
    TaskRequest,
)
from fdg_plugins.plugins.admission import admit
from fdg_plugins.plugins.versions import OF_SITE, code_of, installed_versions, must_be_equal
from fdg_plugins.privacy.reasons import texts_of
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.settings.uses import names_in
from fdg_plugins.state.site_memory import clear_memory, has_memory, read_fixed, read_kept, write_fixed, write_kept
from fdg_plugins.storage import named_path, read_json, write_json
from fdg_plugins.training.loop import ShouldStop

if TYPE_CHECKING:
    from fdg_plugins.data import SharedDomains
    from fdg_plugins.training.networks import SharedNetworks
    from fdg_plugins.training.session import SiteSession

Say = Callable[[str], None]
Tensors = dict[str, torch.Tensor]

CENSUS_FILE = "fdg_census.json"
"""What the last census counted, in the run's folder: later tasks, and jobs, of any process must find it again."""


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
            if order.task == TASK_CENSUS:
                value, tensors = self._census(order, config, folder, should_stop, say), dict[str, Tensors]()
            else:
                session = self._resume(order, config, folder)
                work = _Work(session, _with_fixed_part(order, folder), folder, should_stop, say)
                value, tensors = _WORK[order.task](work)
        except Stopped:
            return TaskResult("aborted", stand_in=self._stand_in())
        except Exception as error:  # noqa: BLE001 - tell the server that it failed, keep the site running
            return failure_of(error, self._stand_in())
        return TaskResult("ok", value, tensors, stand_in=self._stand_in())

    def _census(
        self, order: SiteTask, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say
    ) -> dict[str, Any]:
        request = CensusRequest.read(order.request, "census request", RequestError)
        session = self._open(order, config, request.protocol)
        if session.images.stand_in:
            session = self._open(order, config, request.stand_in_protocol)
        if not request.goes_on:
            clear_memory(folder)
        counted = session.census(should_stop)
        reply = counted.model_copy(update={"keeps_state": has_memory(folder), "versions": _versions_of(session)})
        left_out = sorted(session.images.left_out)
        write_json(folder / CENSUS_FILE, {"job": order.job, **_counted_in(reply), "left_out": left_out}, private=True)
        for line in session.census_lines(reply):
            say(_line(session, line))
        return reply.model_dump(mode="json")

    def _resume(self, order: SiteTask, config: SiteConfig, folder: Path) -> "SiteSession":
        """Return the session for the protocol in a task, on the same data that this job's census counted.

        Raises ``DataError`` if the data changed since the census, ``SettingsError`` if the site's versions or precision
        did, and for a request that is not allowed.
        """
        request = TaskRequest.read(order.request, "task request", RequestError)
        path = folder / CENSUS_FILE
        counted = read_json(path) if path.exists() else {}
        if counted.get("job") != order.job:  # the file may stem from another job of the run
            raise SettingsError(
                "the site has not answered the census of this job, and does no other task of it before.", public=True
            )
        session = self._open(order, config, request.protocol, frozenset(counted.get("left_out", ())))
        if session.images.stand_in != request.stand_in:
            raise DataError(
                "the data changed between the real data set and the STAND-IN since the census.", public=True
            )
        _check_counted(session, counted)
        _check_role(config.role, order.task, held_out=session.images.domain == session.protocol.target)
        return session

    def _open(
        self, order: SiteTask, config: SiteConfig, protocol: Protocol, left_out: frozenset[str] = frozenset()
    ) -> "SiteSession":
        """Return the session for a protocol whose plug-ins the operator allows; raise ``SettingsError`` otherwise."""
        # Imported only by the process that does the work: FLARE's own process needs no data, models or methods.
        from fdg_plugins.training.networks import SharedNetworks
        from fdg_plugins.training.session import SiteSession

        custom = Path(order.custom) if order.custom else None
        admit(names_in(protocol), protocol.plugins, custom, config.allowed_plugins)
        threads = self._threads if config.threads is None else config.threads
        if torch.get_num_threads() != threads:  # those of another site of this process
            torch.set_num_threads(threads)
        opened = self._sessions.pop(order.site, None)
        if opened is None or (opened.config, opened.protocol, opened.images.left_out) != (config, protocol, left_out):
            self._session = opened
            if self._shared is not None:
                self._networks = self._networks or SharedNetworks()
            cache = named_path("FDG_CACHE", os.environ)
            opened = SiteSession(order.site, config, protocol, cache, left_out, self._shared, self._networks)
        if self._shared is None:
            self._sessions.clear()
        self._session = self._sessions[order.site] = opened
        return opened

    def _stand_in(self) -> bool | None:
        return None if self._session is None else self._session.images.stand_in


class _Work(NamedTuple):
    """One task on the received model; each method returns a JSON value and groups of tensors."""

    session: "SiteSession"
    order: SiteTask
    folder: Path
    should_stop: ShouldStop
    say: Say

    def statistics(self) -> tuple[Any, dict[str, Tensors]]:
        personal = read_kept(self.folder, self.order.round_number).personal
        return {}, {"statistics": self.session.statistics(self.order.state, self.should_stop, personal)}

    def probe(self) -> tuple[Any, dict[str, Tensors]]:
        personal = read_kept(self.folder, self.order.round_number).personal
        report = self.session.probe(self.order.state, self.should_stop, personal)
        return {"count": len(self.session.data.train)}, {"report": report}

    def train(self) -> tuple[Any, dict[str, Tensors]]:
        session, number = self.session, self.order.round_number
        epochs = session.protocol.local_epochs + session.objective.more_epochs

        def on_epoch(epoch: int, loss: float) -> None:
            where = f"round {number + 1}/{session.protocol.rounds} | epoch {epoch + 1}/{epochs}"
            self.say(_line(session, f"{where} | train loss {loss:.4f}"))

        kept = read_kept(self.folder, number)
        result = session.train(self.order.state, number, self.should_stop, on_epoch, self.order.received, kept)
        write_kept(self.folder, number, result.kept)
        report = result.report.model_copy(update={"keeps_state": has_memory(self.folder)})
        value = {"samples": len(session.data.train), "report": report}
        return value, {"update": result.update, "report": result.tensors}

    def evaluate(self) -> tuple[Any, dict[str, Tensors]]:
        session, order = self.session, self.order
        split: Literal["test", "validation"] = (
            "test" if session.images.domain == session.protocol.target else "validation"
        )
        # The site does not train in this round, or already has: use what it kept of its last training.
        kept = read_kept(self.folder, order.round_number + 1)
        score = session.evaluate(session.load(order.state, kept.personal), split, self.should_stop)
        value = score.model_dump(mode="python")
        if split == "validation" and session.objective.personalises:
            own = session.evaluate_own(
                order.state, order.round_number, self.should_stop, order.received, kept.memory, kept.personal
            )
            value["personal"] = own.model_dump(mode="python")
        return value, {}


_WORK = {
    TASK_STATISTICS: _Work.statistics,
    TASK_PROBE: _Work.probe,
    TASK_TRAIN: _Work.train,
    TASK_EVALUATE: _Work.evaluate,
}


def _versions_of(session: "SiteSession") -> dict[str, str]:
    """Return with which packages, and plug-ins in use, this process computes."""
    return {**installed_versions(OF_SITE), **code_of(names_in(session.protocol), session.protocol.plugins)}


def _counted_in(reply: CensusReply) -> dict[str, Any]:
    return reply.model_dump(include={"split", "split_hash", "precision", "versions"})


def _check_counted(session: "SiteSession", counted: Mapping[str, Any]) -> None:
    """Raise ``DataError`` or ``SettingsError`` if the data, or how the site computes, are not as they were counted."""
    if counted.get("split_hash") != session.data.split_hash:
        raise DataError(
            f"split {session.data.split} has the hash {session.data.split_hash}, "
            f"but the census counted {counted.get('split_hash')}: the data folder has changed.",
            public=True,
        )
    used = session.policy.precision
    if (told := counted.get("precision", used)) != used:  # the site has moved to another machine
        raise SettingsError(
            f"precision 'auto' means {used} on this machine, but meant {told} in the census.", public=True
        )
    now = _versions_of(session)
    for package, version in counted.get("versions", {}).items():
        if must_be_equal(package) and (found := now.get(package)) != version:
            raise SettingsError(
                f"the site runs {package} {found}, but ran {version} in the census: one job needs one version "
                "everywhere.",
                public=True,
            )


def _with_fixed_part(order: SiteTask, folder: Path) -> SiteTask:
    """Return an order with the whole model: keep the part that is sent once, or add what was kept of it."""
    if (value := order.request.get("fixed")) is None:
        return order
    fixed = FixedPart.read(value, "task request", RequestError)
    if not fixed.names:
        return replace(order, state={**read_fixed(folder, fixed.id), **order.state})
    if not order.state.keys() >= set(fixed.names):
        raise RequestError("the server sent less of the model than it says.")
    write_fixed(folder, fixed.id, {name: order.state[name] for name in fixed.names})
    return order


def _check_role(role: str | None, task: str, *, held_out: bool) -> None:
    """Raise ``SettingsError`` if the site's operator forbids ``task`` for it, regardless of the server's protocol.

    ``held_out``: whether the protocol holds out the site's domain.
    """
    if role == "held_out" and task != TASK_EVALUATE:
        what = "never trains"
    elif role == "held_out" and not held_out:
        what = "is not judged as a source"
    elif role == "source" and held_out:
        what = "is not judged as held out"
    else:
        return
    raise SettingsError(f"the site accepts only the role {role!r} and {what}.", public=True)


def mark(stand_in: bool | None) -> str:
    """Return the prefix for log lines about stand-in images; empty for real data."""
    return "STAND-IN | " if stand_in else ""


def _line(session: "SiteSession", text: str) -> str:
    return f"{mark(session.images.stand_in)}site {session.site} | {text}"
