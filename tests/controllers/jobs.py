# SPDX-License-Identifier: Apache-2.0
"""Jobs in one process: real sites, FLARE's handling of results between, and what was sent."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsData
from nvflare.apis.client import Client
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, ServerCommandKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_copy
from nvflare.apis.signal import Signal

from fdg_plugins.controllers import FederationController
from fdg_plugins.data import PACS
from fdg_plugins.executors import SiteExecutor
from fdg_plugins.filters import (
    ExchangeCheckFilter,
    ExchangeReceiveFilter,
    ExchangeReportFilter,
    ExchangeSendFilter,
    GapCheckFilter,
    GapReportFilter,
)
from fdg_plugins.flare.peers import ASKING_SITE_PROP
from fdg_plugins.messages import TASK_CENSUS, TASK_PROBE, TASK_STATISTICS, TASK_TRAIN
from fdg_plugins.recipes import FDGRecipe
from fdg_plugins.record.run_files import LAST_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.storage import load_tensors
from tests.controllers.federation_stubs import Engine, Line, context_of
from tests.finished_runs import record_in
from tests.flare_runner import run_task, site_context
from tests.recipes.exported_jobs import arguments

PROTOCOL: dict[str, Any] = {
    **{"model": "convnet", "pretrained": "none", "target": "sketch", "image_size": 16},
    **{"rounds": 2, "local_epochs": 1, "learning_rate": 0.02},
}
DIGITS: dict[str, Any] = {
    **PROTOCOL,
    **{"dataset": "rotateddigits", "target": "angle_0", "max_samples_per_domain": 20, "batch_size": 8},
}
ANGLES = tuple(f"angle_{angle}" for angle in (0, 15, 30, 45, 60, 75))
# These work on the maps that a network pools. The CNN, which has none, takes a tenth of the time.
OF_POOLED_MAPS = ("rsc", "stable")
State = dict[str, torch.Tensor]
Meddle = Callable[[str, str, int], Shareable | None]
Forge = Callable[[str, str, Shareable], None]


class Job:
    """A job of sites in one process, by default the four of PACS.

    ``meddle(site, task, count)`` may answer in a site's stead, ``forge(site, task, answer)`` change an answer that
    is to change the model. ``requests`` are the task, the site and the model of each task but the census, in order.
    """

    def __init__(
        self,
        folder: Path,
        *,
        sites: Sequence[str] = PACS.domains,
        meddle: Meddle = lambda site, task, count: None,
        forge: Forge = lambda site, task, answer: None,
        **arguments: Any,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.meddle, self.forge = folder, meddle, forge
        self.asked: list[tuple[str, str]] = []
        self.requests: list[tuple[str, str, State]] = []
        self.sites = {site: SiteExecutor() for site in sites}
        self.engine = Engine(folder, tuple(reversed(sites)))
        rule = {"name": "fedomg", "server_lr": 0.5}
        self.controller = FederationController(**{"protocol": PROTOCOL, "aggregator": rule, **arguments})
        self.signal = Signal()
        self.deploy_map = {"app": ["@ALL"]}

    def run(self) -> None:
        self.controller.set_communicator(Line(self._answer))
        context = context_of(self.engine)
        context.set_prop(FLContextKey.JOB_META, {"deploy_map": self.deploy_map}, private=True, sticky=True)
        self.controller.start_controller(context)
        self.controller.control_flow(self.signal, context)

    def finished(self) -> Self:
        self.run()
        assert self.panics == []
        return self

    def sent(self, task: str, site: str) -> list[State]:
        """Return the models that came with a task to a site."""
        return [model for name, where, model in self.requests if (name, where) == (task, site)]

    @property
    def model(self) -> State:
        return load_tensors(self.folder / LAST_FILE)

    @property
    def panics(self) -> list[str]:
        return self.engine.data_of(EventType.FATAL_SYSTEM_ERROR)

    @property
    def tags(self) -> set[str]:
        events = self.engine.data_of(ANALYTIC_EVENT_TYPE)
        return {AnalyticsData.from_dxo(from_shareable(event)).tag for event in events}

    @property
    def record(self) -> RunRecord:
        return record_in(self.folder)

    def _answer(self, site: str, task: str, request: Shareable) -> Shareable | None:
        self.asked.append((task, site))
        if task != TASK_CENSUS:
            model = {name: value.clone() for name, value in from_shareable(request).data.items()}
            self.requests.append((task, site, model))
        request = self._down(site, task, request)
        reply = self.meddle(site, task, self.asked.count((task, site)))
        reply = reply or run_task(self.sites[site], task, request, self._context(site), self.signal)
        if task in (TASK_PROBE, TASK_STATISTICS, TASK_TRAIN):
            self.forge(site, task, reply)
        return self._up(site, task, reply)

    def _down(self, site: str, task: str, request: Shareable) -> Shareable:
        return request

    def _up(self, site: str, task: str, answer: Shareable) -> Shareable:
        return answer

    def _context(self, site: str) -> FLContext:
        return site_context(site, self.folder / "sites" / site)


class MethodJob(Job):
    """A job of the six angles of RotatedDigits whose messages pass the filters, as FLARE applies them."""

    def __init__(
        self, folder: Path, objective: Any = "erm", *, settings: dict[str, Any] | None = None, **arguments: Any
    ) -> None:
        model = network_for(objective if isinstance(objective, str) else objective["name"])
        protocol = {**DIGITS, "model": model, "objective": objective, **(settings or {})}
        super().__init__(folder, **{"sites": ANGLES, "protocol": protocol, "aggregator": "fedavg", **arguments})

    def _down(self, site: str, task: str, request: Shareable) -> Shareable:
        if task != TASK_TRAIN:
            return request
        request = self._filter([ExchangeSendFilter()], make_copy(request), site, task, at_server=True)
        return self._filter([ExchangeReceiveFilter()], request, site, task)

    def _up(self, site: str, task: str, answer: Shareable) -> Shareable:
        if task not in (TASK_PROBE, TASK_TRAIN):
            return answer
        answer = self._filter([GapReportFilter(), ExchangeReportFilter()], answer, site, task)
        answer.set_header(ServerCommandKey.FL_CLIENT, Client(site, "token"))
        return self._filter([ExchangeCheckFilter(), GapCheckFilter()], answer, site, task, at_server=True)

    def _filter(
        self, filters: list[Filter], shareable: Shareable, site: str, task: str, *, at_server: bool = False
    ) -> Shareable:
        context = context_of(self.engine) if at_server else self._context(site)
        context.set_prop(FLContextKey.TASK_NAME, task, private=True, sticky=False)
        if at_server:
            context.set_peer_context(self._context(site))
            context.set_prop(ASKING_SITE_PROP, site, private=True, sticky=False)
        for filter_ in filters:
            shareable = filter_.process(shareable, context)
        return shareable


def network_for(objective: str) -> str:
    """Return the smallest network that an objective can train."""
    return "groupnorm_convnet" if objective in OF_POOLED_MAPS else "cnn"


def said_by(recipe: FDGRecipe, folder: Path, *left_out: str) -> dict[str, Any]:
    """Return what the job of a recipe says, as arguments of a job in one process, without some settings."""
    said = arguments(recipe, folder)
    protocol = {name: value for name, value in said["protocol"].items() if name not in left_out}
    return {"objective": protocol.pop("objective", "erm"), "aggregator": said["aggregator"], "settings": protocol}
