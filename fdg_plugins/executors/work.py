# SPDX-License-Identifier: Apache-2.0
"""One task of a site, from task to result, without FLARE: the same in FLARE's process and in a separate one."""

import os
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch

from fdg_plugins.errors import DataError, FDGError, SettingsError, Stopped
from fdg_plugins.messages import (
    TASK_CENSUS,
    TASK_EVALUATE,
    TASK_PROBE,
    TASK_SCORE,
    TASK_STATISTICS,
    TASK_TRAIN,
    CensusRequest,
    ModelScores,
    ScoreSum,
    TaskRequest,
)
from fdg_plugins.plugins.files import admit
from fdg_plugins.plugins.versions import must_be_equal
from fdg_plugins.privacy.reasons import texts_of
from fdg_plugins.settings.protocol import EVERY, Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.state.site_memory import (
    SCORED,
    clear_memory,
    has_memory,
    read_fixed,
    read_kept,
    read_round,
    write_fixed,
    write_kept,
    write_round,
)
from fdg_plugins.storage import named_path, read_json, write_json
from fdg_plugins.training.loop import ShouldStop

if TYPE_CHECKING:
    from fdg_plugins.data import SharedDomains
    from fdg_plugins.training.networks import SharedNetworks
    from fdg_plugins.training.session import SiteSession

Say = Callable[[str], None]
Tensors = dict[str, torch.Tensor]
T = TypeVar("T")

CENSUS_FILE = "fdg_census.json"
"""What the last census counted, in the run's folder: later tasks, and jobs, of any process must find it again."""


class RequestError(SettingsError):
    """The server's task is invalid. The text quotes only what the server sent, so all of it may leave the site."""

    def __init__(self, text: str) -> None:
        super().__init__(text, public=True)


@dataclass(frozen=True)
class SiteTask:
    """One task for a site.

    ``request``: what the server asks for. ``round_number``: counted from 0. ``state``: the global model. ``received``:
    the tensors sent with it. ``job``: id of the job that asks. ``custom``: folder of the code that the job brought,
    searched only for plug-ins that the protocol names.
    """

    task: str
    site: str
    request: CensusRequest | TaskRequest
    round_number: int = 0
    state: Tensors = field(default_factory=dict)
    received: Tensors = field(default_factory=dict)
    job: str = ""
    custom: Path | None = None


@dataclass(frozen=True)
class TaskResult:
    """The result of a task.

    If ``ok``: a JSON value (NaN allowed) and named groups of tensors. If ``failed``: ``reason`` is one sentence for
    the site's log, ``public`` is the part that may leave the site, and ``trace`` is the traceback of an unexpected
    error.
    """

    kind: Literal["ok", "failed", "aborted"]
    value: Any = None
    tensors: dict[str, Tensors] = field(default_factory=dict)
    reason: str = ""
    public: str = ""
    trace: str = ""


def attempt(work: Callable[[], T]) -> T | TaskResult:
    """Return what ``work`` returns; if it was stopped, or raised any ``Exception``, the result of a task that did."""
    try:
        return work()
    except Stopped:
        return TaskResult("aborted")
    except Exception as error:  # noqa: BLE001 - tell the server why it failed, keep the site running
        reason, public = texts_of(error)
        trace = "" if isinstance(error, FDGError) else traceback.format_exc()
        return TaskResult("failed", reason=reason, public=public, trace=trace)


class SiteWork:
    """Does tasks in this process, and keeps the data open between tasks. Holds no state that must persist.

    ``shared``: for the tasks of many sites, what their sessions share; the data of all sites then stay open.
    """

    def __init__(self, shared: "SharedDomains | None" = None) -> None:
        self._shared = shared
        self._sessions: dict[str, SiteSession] = {}  # by site
        self._networks: SharedNetworks | None = None
        self._protocol: Protocol | None = None  # of all sites, which each receive a copy of their own
        self._threads = torch.get_num_threads()  # at most, of a site that has no number itself

    def do_work(
        self, order: SiteTask, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say
    ) -> TaskResult:
        """Return the result of ``order``; never raise an ``Exception``.

        ``folder`` holds the run's state at the site. ``say`` receives each log line. Once ``should_stop()`` is true,
        the work ends within one batch as ``aborted``.
        """
        work = _Work(self, order, config, folder, should_stop, say)
        return attempt(lambda: TaskResult("ok", *_WORK[order.task](work)))

    def use_threads(self, count: int | None) -> None:
        """Compute with so many threads, or as many as this process had at first: other sites may have set others."""
        if torch.get_num_threads() != (count := count or self._threads):
            torch.set_num_threads(count)

    def open(
        self, order: SiteTask, config: SiteConfig, protocol: Protocol, left_out: frozenset[str] = frozenset()
    ) -> "SiteSession":
        """Return the session for a protocol whose plug-ins the operator allows; raise ``SettingsError`` otherwise."""
        # Imported only by the process that does the work: FLARE's own process needs no data, models or methods.
        from fdg_plugins.training.networks import SharedNetworks
        from fdg_plugins.training.session import SiteSession

        if protocol.target == EVERY and not config.evaluates:
            raise SettingsError("the site forbids the evaluation of finished models (evaluates).", public=True)
        admit(protocol.uses, protocol.plugins, order.custom, config.allowed_plugins)
        config = config if config.threads else config.model_copy(update={"threads": self._threads})
        self._protocol = protocol = self._protocol if self._protocol == protocol else protocol
        opened = self._sessions.get(order.site)
        if self._shared is None:
            self._sessions.clear()  # before the data of another site are opened
        if opened is None or (opened.config, opened.protocol, opened.images.left_out) != (config, protocol, left_out):
            cache, self._networks = named_path("FDG_CACHE", os.environ), self._networks or SharedNetworks()
            opened = SiteSession(order.site, config, protocol, cache, left_out, self._shared, self._networks)
        self._sessions[order.site] = opened
        return opened


@dataclass
class _Work:
    """One task; each method returns a JSON value and groups of tensors."""

    worker: SiteWork
    order: SiteTask
    config: SiteConfig
    folder: Path
    should_stop: ShouldStop
    say: Say

    def census(self) -> tuple[Any, dict[str, Tensors]]:
        order, request, folder = self.order, self.order.request, self.folder
        assert isinstance(request, CensusRequest)
        self.worker.use_threads(self.config.threads)  # they decode images
        session = self._open(request.protocol)
        if session.images.stand_in:
            session = self._open(request.stand_in_protocol)
        if not request.goes_on:
            clear_memory(folder)
        reply = session.census().model_copy(update={"keeps_state": has_memory(folder)})
        told = reply.model_dump(mode="json")
        found = {name: told[name] for name in ("split_hash", "precision", "versions")}
        found |= {"job": order.job, "left_out": sorted(session.images.left_out)}
        write_json(folder / CENSUS_FILE, found, private=True, durable=False)  # another job counts anew
        for line in session.census_lines(reply):
            self.say(_line(session, line))
        return told, {}

    def _open(self, protocol: Protocol, left_out: frozenset[str] = frozenset()) -> "SiteSession":
        session = self.worker.open(self.order, self.config, protocol, left_out)
        session.should_stop = self.should_stop
        return session

    @cached_property
    def session(self) -> "SiteSession":
        """The session for the protocol in a task, on the same data that this job's census counted.

        Raises ``SettingsError`` if the site has changed since, and for a request that its operator does not allow.
        """
        order, request, path = self.order, self.order.request, self.folder / CENSUS_FILE
        assert isinstance(request, TaskRequest)
        counted = read_json(path) if path.exists() else {}
        if counted.get("job") != order.job:  # the file may stem from another job of the run
            text = "the site has not answered the census of this job, and does no other task of it before."
            raise SettingsError(text, public=True)
        session = self._open(request.protocol, frozenset(counted["left_out"]))
        for reason in (*_changes(session, request, counted), *_forbidden(session, order.task, self.config.role)):
            raise SettingsError(reason, public=True)
        self.worker.use_threads(session.threads)
        return session

    @cached_property
    def state(self) -> Tensors:
        """The whole model: the part that is sent once is kept, or what was kept of it is added."""
        state, request = self.order.state, self.order.request
        if not isinstance(request, TaskRequest) or (fixed := request.fixed) is None:
            return state
        if not fixed.names:
            return {**read_fixed(self.folder, fixed.id), **state}
        if not state.keys() >= set(fixed.names):
            raise RequestError("the server sent less of the model than it says.")
        write_fixed(self.folder, fixed.id, {name: state[name] for name in fixed.names})
        return state

    def statistics(self) -> tuple[Any, dict[str, Tensors]]:
        session, kept = self.session, read_kept(self.folder, self.order.round_number)
        return {}, {"statistics": session.statistics(self.state, kept.personal)}

    def probe(self) -> tuple[Any, dict[str, Tensors]]:
        session, kept = self.session, read_kept(self.folder, self.order.round_number)
        report = session.probe(self.state, kept.personal)
        return {"count": len(session.data.train)}, {"report": report}

    def train(self) -> tuple[Any, dict[str, Tensors]]:
        session, number = self.session, self.order.round_number
        epochs = session.protocol.local_epochs + session.objective.more_epochs

        def on_epoch(epoch: int, loss: float) -> None:
            where = f"round {number + 1}/{session.protocol.rounds} | epoch {epoch + 1}/{epochs}"
            self.say(_line(session, f"{where} | train loss {loss:.4f}"))

        kept = read_kept(self.folder, number)
        result = session.train(self.state, number, on_epoch, self.order.received, kept)
        write_kept(self.folder, number, result.kept)
        report = result.report.model_copy(update={"keeps_state": has_memory(self.folder)})
        value = {"samples": len(session.data.train), "report": report}
        return value, {"update": result.update, "report": result.tensors}

    def evaluate(self) -> tuple[Any, dict[str, Tensors]]:
        session, order = self.session, self.order
        held_out = session.protocol.holds_out(session.images.domain)
        # The site does not train in this round, or already has: use what it kept of its last training.
        kept = read_kept(self.folder, order.round_number + 1)
        model = session.load(self.state, kept.personal)
        value = session.evaluate(model, "test" if held_out else "validation").model_dump()
        if session.objective.personalises and not held_out:
            own = session.evaluate_own(self.state, order.round_number, order.received, kept)
            value["personal"] = own.model_dump()
        return value, {}

    def score(self) -> tuple[Any, dict[str, Tensors]]:
        from fdg_plugins.tasks.counts import pack
        from fdg_plugins.training.results import paired_counts, without_few

        session, number, least = self.session, self.order.round_number, self.session.config.least_count
        if (count := len(session.data.test)) < least:
            raise DataError(f"it has {count} images, expected at least its least_count, {least}.", public=True)
        score, each = session.score(session.load(self.state))
        kept = read_round(self.folder, SCORED, number)
        write_round(self.folder, SCORED, number, {**kept, str(number): each})
        sums = {name: ScoreSum(sum=total, count=samples) for name, (total, samples) in score.sums.items()}
        pairs = {earlier: paired_counts(own, each) for earlier, own in kept.items() if len(each)}
        counts, withheld = without_few(score.counts, count, least)
        packed = {name: pack(one) for name, one in counts.items()}
        scores = ModelScores(count=count, sums=sums, counts=packed, pairs=pairs, withheld=withheld)
        return scores.model_dump(), {}


_WORK = {
    TASK_CENSUS: _Work.census,
    TASK_STATISTICS: _Work.statistics,
    TASK_PROBE: _Work.probe,
    TASK_TRAIN: _Work.train,
    TASK_EVALUATE: _Work.evaluate,
    TASK_SCORE: _Work.score,
}


def _changes(session: "SiteSession", request: TaskRequest, counted: dict[str, Any]) -> Iterator[str]:
    """Yield what has changed at the site since the census, which has ``counted``."""
    data, used, versions = session.data, session.policy.precision, session.versions
    if session.images.stand_in != request.stand_in:
        yield "the data changed between the real data set and the STAND-IN since the census."
    if data.digest != counted["split_hash"]:
        text = f"split {data.name} has the hash {data.digest}, but the census counted {counted['split_hash']}"
        yield f"{text}: the data folder has changed."
    if used != counted["precision"]:  # the site has moved to another machine
        yield f"precision 'auto' means {used} on this machine, but meant {counted['precision']} in the census."
    for package, version in counted["versions"].items():
        if must_be_equal(package) and (found := versions.get(package)) != version:
            told = f"the site runs {package} {found}, but ran {version} in the census"
            yield f"{told}: one job needs one version everywhere."


def _forbidden(session: "SiteSession", task: str, role: str | None) -> Iterator[str]:
    """Yield why the site does not do ``task``, in the one ``role`` that its operator may have set for it."""
    held_out = session.protocol.holds_out(session.images.domain)
    if task == TASK_SCORE and session.protocol.target != EVERY:
        yield "the server asks for the scores of a model whose sites train."
    if role == "held_out" and task not in (TASK_EVALUATE, TASK_SCORE):
        yield f"the site accepts only the role {role!r} and never trains."
    if role not in (None, "held_out" if held_out else "source"):
        what = "held out" if held_out else "a source"
        yield f"the site accepts only the role {role!r} and is not evaluated as {what}."


def _line(session: "SiteSession", text: str) -> str:
    return f"{'STAND-IN | ' if session.images.stand_in else ''}site {session.site} | {text}"
