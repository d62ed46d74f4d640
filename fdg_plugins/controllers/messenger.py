# SPDX-License-Identifier: Apache-2.0
"""Sends several tasks to the sites at once, takes answers as they arrive, and records a reason for each missing one."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fdg_plugins.errors import LONGEST_QUOTE, ContributionError, FDGError, counted, one_line, raised_at, told
from fdg_plugins.flare.broken_uploads import register_server_tensors
from fdg_plugins.flare.context import in_simulator
from fdg_plugins.flare.rejoin import welcome_returning_sites
from fdg_plugins.flare.workflow import POLL_S, Workflow
from fdg_plugins.messages import (
    HEADER_NOT_FINITE,
    HEADER_REASON,
    HEADER_STOP,
    META_REQUEST,
    META_SITE,
    TASK_CENSUS,
    CensusReply,
    CensusRequest,
    FixedPart,
    TaskRequest,
)
from fdg_plugins.storage import checksum_of_tensors
from fdg_plugins.training.global_model import GlobalModel, count_bytes


class Aborted(Exception):  # noqa: N818 - a request that was followed, not an error
    """The job was aborted by a user or because its sites are gone; the text names the sites still awaited."""


@dataclass(frozen=True)
class Request:
    """One task for some sites, and the handler for each answer.

    ``on_answer(site, model)`` may refuse the answer by raising ``ContributionError``.
    """

    task: str
    sites: tuple[str, ...]
    data: FLModel
    on_answer: Callable[[str, FLModel], None]


@dataclass(frozen=True)
class StragglerTimeout:
    """The straggler timeout: stop waiting ``seconds`` after ``enough`` usable answers to ``task`` have arrived."""

    seconds: float
    enough: int
    task: str


class Messenger(Workflow):
    """A workflow that sends several tasks at once and records a reason for every missing answer."""

    def __init__(self) -> None:
        super().__init__()
        self._mark = ""  # a prefix for every log line of the run, such as STAND-IN
        self._failures: dict[str, str] = {}
        self._usable: Counter[str] = Counter()
        self.not_finite: set[str] = set()  # sites whose training gave no finite result in the last ``ask``
        self.departed: dict[str, str] = {}  # sites that announced that they take no further part, with the reason

    def run(self) -> None:
        """Run the job to completion; a problem that the user can fix ends it with a one-sentence reason."""
        register_server_tensors()
        welcome_returning_sites(self.engine)
        try:
            self.carry_out()
        except (Aborted, FDGError) as error:
            self.stop(str(error))
            # In the simulator, an abort means that a site died, not a user's request.
            if not isinstance(error, Aborted) or in_simulator(self.fl_ctx):
                self.panic(str(error))
        except Exception as error:
            self.stop(told(error))
            raise  # FLARE logs the traceback and ends the job

    def carry_out(self) -> None:
        """Do what the workflow is for; raise ``FDGError`` for a problem that the user can fix."""
        raise NotImplementedError

    def stop(self, reason: str) -> None:
        """Log why the job ends early."""
        self.error(f"stopped: {reason}")

    def count_images(self, request: CensusRequest, timeout: int) -> tuple[dict[str, CensusReply], dict[str, str]]:
        """Ask all connected sites for the census; return their replies, and the reason for each that is missing."""
        sites = tuple(sorted(client.name for client in self.engine.get_clients()))
        replies: dict[str, CensusReply] = {}

        def on_answer(site: str, model: FLModel) -> None:
            replies[site] = CensusReply.read(model.metrics, f"site {site}: census", ContributionError)

        meta = {META_REQUEST: request.model_dump(mode="json")}
        data = FLModel(params_type=ParamsType.FULL, params={}, current_round=0, meta=meta)
        self.say(f"census of {counted(len(sites), 'site')}: {', '.join(sites)}")
        return replies, self.ask([Request(TASK_CENSUS, sites, data, on_answer)], timeout)

    def info(self, msg: str) -> None:
        """Log the base classes' bookkeeping ("Sending task ...") at debug level only."""
        self.debug(msg)

    def say(self, text: str) -> None:
        """Log a line for the user, with the run's mark."""
        self.log_info(self.fl_ctx, self._marked(text))

    def warning(self, msg: str) -> None:
        """Log a warning, with the run's mark."""
        super().warning(self._marked(msg))

    def error(self, msg: str) -> None:
        """Log an error, with the run's mark."""
        super().error(self._marked(msg))

    def _marked(self, text: str) -> str:
        return f"{self._mark} | {text}" if self._mark else text

    def ask(
        self, requests: Iterable[Request], timeout: int, patience: StragglerTimeout | None = None
    ) -> dict[str, str]:
        """Send all requests and wait for the answers; return, by site, the reason for each unusable or missing answer.

        ``timeout`` is in seconds; in one process, where sites work one after the other, it is the time for one turn, as
        is that of ``patience``. Raises ``Aborted`` if the job is aborted while waiting.
        """
        self._failures, self._usable, self.not_finite = {}, Counter(), set()
        requests = [request for request in requests if request.sites]  # for nobody, FLARE would wait until the timeout
        waiting = {site for request in requests for site in request.sites}
        local = self.local_tasks
        turns = 1 if local is None else local.turns(len(waiting))
        for request in requests:
            self._send(request, waiting, timeout * turns)
        if local is not None:
            local.offer(site for request in requests for site in request.sites)
        given_up = self._wait(patience and replace(patience, seconds=patience.seconds * turns))
        if self.abort_signal.triggered:
            awaited = ", ".join(sorted(waiting - self._failures.keys())) or "nobody"
            raise Aborted(f"the job was aborted while it waited for {awaited}.")
        for site in sorted(waiting - self._failures.keys()):
            reason = given_up or f"did not answer within {timeout * turns} s."
            is_lost = self.communicator.get_client_disconnect_time(site)  # as FLARE considers it
            self._fail(site, "is lost: there is no sign of life from it." if is_lost else reason)
        return dict(sorted(self._failures.items()))

    def _wait(self, patience: StragglerTimeout | None) -> str | None:
        """Wait until no task is pending or the job is aborted; return why tasks were cancelled, or None."""
        given_up: str | None = None
        deadline = math.inf
        while self.get_num_standing_tasks() and not self.abort_signal.triggered:
            if patience is not None and given_up is None:
                if deadline == math.inf and self._usable[patience.task] >= patience.enough:
                    deadline = time.monotonic() + patience.seconds
                if time.monotonic() >= deadline:
                    given_up = f"did not answer within {patience.seconds:g} s after {patience.enough} others had."
                    self.cancel_all_tasks()
            # In one process, a site works meanwhile.
            (time.sleep if self.local_tasks is None else self.local_tasks.wait)(POLL_S)
        return given_up

    def _send(self, request: Request, waiting: set[str], timeout: int) -> None:
        def receive(model: FLModel) -> bool:
            site = model.meta[META_SITE]
            with self._reading(site):
                request.on_answer(site, model)
                waiting.discard(site)
                self._usable[request.task] += 1
            return site not in waiting

        self.broadcast_model(
            data=request.data,
            task_name=request.task,
            targets=list(request.sites),
            timeout=timeout,
            blocking=False,
            callback=receive,
        )

    @contextmanager
    def _reading(self, site: str) -> Iterator[None]:
        """Record that a site's answer cannot be used, whatever it makes its reader raise.

        FLARE would write an error's text, which may be the site's, to its log as it is, or end the task for all others.
        """
        try:
            yield
        except ContributionError as error:
            self._fail(site, str(error))
        except Exception as error:  # noqa: BLE001 - any can come of what a site sends
            why = one_line(told(error), LONGEST_QUOTE).rstrip(".")
            self._fail(site, f"its answer cannot be read: {why} (in {raised_at(error)}).")

    def _fail(self, site: str, reason: str) -> None:
        """Record why a site gave no usable answer; the reason may quote the site, so it is cut to one short line."""
        reason = one_line(reason.removeprefix(f"site {site}: "))
        self._failures[site] = reason
        self.warning(f"site {site}: {reason}")

    def _accept_train_result(
        self, client_name: str, result: Shareable, fl_ctx: FLContext, is_unknown_task: bool = False
    ) -> bool:
        """See every answer, also late ones and errors, which FLARE would drop; return whether it is usable."""
        if is_unknown_task:
            self.warning(f"site {client_name}: its answer came after its task had ended, and is not used.")
            return False
        with self._reading(client_name):
            if self._is_answer(client_name, result):
                FLModelUtils.from_shareable(result)  # FLARE does this next, and would log an error's text as it is
                return bool(super()._accept_train_result(client_name, result, fl_ctx, is_unknown_task))
        return False

    def _is_answer(self, site: str, result: Shareable) -> bool:
        code, reason = result.get_return_code(ReturnCode.OK), result.get_header(HEADER_REASON)
        if isinstance(code, str) and code == ReturnCode.OK:  # a site may send anything, such as an array
            return True
        self._fail(
            site,
            reason if isinstance(reason, str) else f"answered with the error {one_line(str(code), LONGEST_QUOTE)}.",
        )
        if result.get_header(HEADER_NOT_FINITE) is True:
            self.not_finite.add(site)
        if result.get_header(HEADER_STOP) is True:
            self.departed[site] = self._failures[site]
        return False


class ModelSender:
    """Makes the tasks that carry the global model: all of it at first, then only what may have changed.

    A large part of a network that no step changes, such as a fixed pretrained extractor, is sent to each site once. The
    site keeps it in the run's folder. A site that gave no usable answer gets the whole model again with its next task,
    so one that has lost what it kept is out for one task.

    ``bytes_down``: bytes of the model in all tasks made so far, for each site that a task is for.
    """

    def __init__(self, model: GlobalModel) -> None:
        self.model = model
        self.bytes_down = 0
        self._holders: set[str] = set()

    @cached_property
    def _id(self) -> str:
        """The name of the fixed part, made of its values, which are the same throughout a run."""
        return checksum_of_tensors({name: self.model.state[name] for name in self.model.fixed}, {})

    def requests(
        self,
        task: str,
        sites: Iterable[str],
        number: int,
        on_answer: Callable[[str, FLModel], None],
        request: TaskRequest,
        receiving: Collection[str] = (),
    ) -> list[Request]:
        """Return the requests of round ``number``, counted from 1; ``receiving``: the sites to whom more is sent."""
        state, fixed = self.model.state, self.model.fixed
        rest = {name: value for name, value in state.items() if name not in fixed}
        groups: dict[tuple[bool, bool], list[str]] = {}
        for site in sites:
            groups.setdefault((site in receiving, bool(fixed) and site in self._holders), []).append(site)
        made = []
        for (receives, holds), group in groups.items():
            params = rest if holds else state
            part = FixedPart(id=self._id, names=() if holds else fixed) if fixed else None
            told = request.model_copy(update={"exchanged": receives, "fixed": part})
            self.bytes_down += count_bytes(params) * len(group)
            made.append(Request(task, tuple(group), task_message(told, number, params), on_answer))
        return made

    def note(self, sites: tuple[str, ...], failures: Mapping[str, str]) -> None:
        """Note that ``sites`` were asked, and which of them gave no usable answer."""
        self._holders = (self._holders | set(sites)) - failures.keys()


def task_message(request: TaskRequest, number: int, params: Mapping[str, Any]) -> FLModel:
    """Return FLARE's message for a task of round ``number``, counted from 1."""
    return FLModel(
        params_type=ParamsType.FULL,
        params=dict(params),
        current_round=number - 1,  # FLARE and the wire count from 0
        total_rounds=request.protocol.rounds,
        meta={META_REQUEST: request.model_dump(mode="json")},
    )
