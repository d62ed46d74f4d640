# SPDX-License-Identifier: Apache-2.0
"""The FLARE Executor of a site: answers census, probe, train and evaluate, and never with a traceback."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.fuel.utils import fobs
from nvflare.private.fed.simulator.simulator_const import SimulatorConstants

from fdg_plugins.allow_list import count_other_components
from fdg_plugins.components import SITE
from fdg_plugins.errors import ContributionError, FDGError, SettingsError
from fdg_plugins.executors.audit import audit_event
from fdg_plugins.executors.isolation import TrainingProcess
from fdg_plugins.executors.work import Order, Outcome, SiteWork, mark, reason_of
from fdg_plugins.messages import (
    HEADER_REASON,
    HEADER_RUN,
    META_RECEIVED,
    META_REPORT,
    META_REQUEST,
    META_SAMPLES,
    META_SITE_REPORT,
    TASK_CENSUS,
    TASK_EVALUATE,
    TASK_PROBE,
    TASK_TRAIN,
    CensusRequest,
    TaskRequest,
    TrainReport,
)
from fdg_plugins.quiet import quiet_console
from fdg_plugins.site_config import site_config_of
from fdg_plugins.state import state_folder

TASKS = (TASK_CENSUS, TASK_PROBE, TASK_TRAIN, TASK_EVALUATE)


class SiteExecutor(Executor):
    """Trains and evaluates on the site's own data as the server's protocol says; takes no settings from the job.

    Where the data lies, which domain it is and where to compute is the site's own config. The work itself is
    done in a process of its own, which may die without harm to the job, or in this one (``isolate``). What must
    survive a round lies in the run's folder, since the simulator may use a new process for every task.
    """

    def __init__(self) -> None:
        super().__init__()
        self._work: SiteWork | None = None
        self._process: TrainingProcess | None = None
        self._stand_in = False

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Teach FLARE's serializer about tensors, keep its console to what a person reads, audit what leaves, and end
        the training process with the run."""
        if event_type == EventType.START_RUN:
            fobs.register(TensorDecomposer)
            quiet_console()
        if event_type in (EventType.ABORT_TASK, EventType.END_RUN) and self._process is not None:
            self._process.close()
        audit_event(event_type, fl_ctx)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Return the answer to one task; an error reply carries its reason, in one sentence, as a header."""
        if task_name not in TASKS:
            return make_reply(ReturnCode.TASK_UNKNOWN, {HEADER_REASON: f"unknown task {task_name!r}."})
        about = f"site {fl_ctx.get_identity_name()} | task {task_name}"
        try:
            outcome = self._do(task_name, shareable, fl_ctx, abort_signal)
            if outcome.kind == "ok":
                return _answer(task_name, outcome, shareable)
        except FDGError as error:
            outcome = Outcome("failed", reason=str(error))
        except Exception as error:  # noqa: BLE001 - the boundary to FLARE: the server must learn why, the site goes on
            self.log_exception(fl_ctx, f"{mark(self._stand_in)}{about}: unforeseen error")
            outcome = Outcome("failed", reason=reason_of(error))
        if outcome.kind == "aborted":
            self.log_info(fl_ctx, f"{mark(self._stand_in)}{about} was aborted.")
            return make_reply(ReturnCode.TASK_ABORTED)
        self.log_error(fl_ctx, f"{mark(self._stand_in)}{about} failed: {outcome.reason}")
        if outcome.trace:
            self.log_error(fl_ctx, outcome.trace)
        return make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: outcome.reason})

    def _do(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Outcome:
        """Return what came of a task, done in this process or in one of its own."""
        site = fl_ctx.get_identity_name()
        order, run = _order(task_name, site, shareable)
        folder = state_folder(fl_ctx.get_engine().get_workspace(), run)
        config = site_config_of(site, fl_ctx)
        isolate = fl_ctx.get_job_id() != SimulatorConstants.JOB_NAME if config.isolate is None else config.isolate
        outcome = self._worker(site, isolate=isolate).do_work(
            order,
            config,
            folder,
            should_stop=lambda: bool(abort_signal.triggered),
            say=lambda line: self.log_info(fl_ctx, line),
        )
        if outcome.stand_in is not None:
            self._stand_in = outcome.stand_in
        if task_name == TASK_CENSUS and outcome.kind == "ok":
            return replace(outcome, value={**outcome.value, "num_other_components": _num_other_components(fl_ctx)})
        return outcome

    def _worker(self, site: str, *, isolate: bool) -> SiteWork | TrainingProcess:
        """Return whatever does the work, made at the first task: a constructor starts nothing."""
        if not isolate:
            self._work = self._work or SiteWork()
            return self._work

        def log(line: str) -> None:
            self.logger.info(f"{mark(self._stand_in)}site {site} | training process: {line}")

        self._process = self._process or TrainingProcess(log)
        return self._process


def _order(task_name: str, site: str, shareable: Shareable) -> tuple[Order, str]:
    """Return the order in a task, read and checked, and the run to which it belongs."""
    raw = _meta(shareable).get(META_REQUEST)
    if task_name == TASK_CENSUS:
        census = CensusRequest.read(raw, "census request", SettingsError)
        return Order(task_name, site, census.model_dump(mode="json")), census.run
    request = TaskRequest.read(raw, "task request", SettingsError)
    round_number = int(shareable.get_header(AppConstants.CURRENT_ROUND, 0))
    received = _received(shareable, request) if task_name == TASK_TRAIN else {}
    order = Order(task_name, site, request.model_dump(mode="json"), round_number, _weights(shareable), received)
    return order, request.run


def _num_other_components(fl_ctx: FLContext) -> int | None:
    """Return how many classes the site's operator allows that jobs of this package do not need; None if not known.

    FLARE's simulator has one list for all sites, made for each run.
    """
    if fl_ctx.get_job_id() == SimulatorConstants.JOB_NAME:
        return None
    return count_other_components(Path(fl_ctx.get_engine().get_workspace().get_root_dir()), SITE)


def _answer(task_name: str, outcome: Outcome, task: Shareable) -> Shareable:
    """Return the answer to a task whose work is done."""
    value, tensors = outcome.value, outcome.tensors
    if task_name in (TASK_CENSUS, TASK_EVALUATE):
        return DXO(DataKind.METRICS, data=value).to_shareable()
    if task_name == TASK_PROBE:
        return _labelled(DXO(DataKind.METRICS, data=value, meta={META_SITE_REPORT: tensors["report"]}), task)
    report = TrainReport.read(value["report"], "report of the training", ContributionError)
    meta: dict[str, Any] = {META_SAMPLES: value["samples"], META_REPORT: report.model_dump(mode="python")}
    if report.received is not None:
        meta[MetaKey.INITIAL_METRICS] = {"val_accuracy": report.received.accuracy}
    if tensors["report"]:
        meta[META_SITE_REPORT] = tensors["report"]
    return _labelled(DXO(DataKind.WEIGHT_DIFF, data=tensors["update"], meta=meta), task)


def _meta(shareable: Shareable) -> dict[str, Any]:
    dxo = from_shareable(shareable)
    if dxo.data_kind == DataKind.COLLECTION:
        raise SettingsError(f"the job's site config needs ExchangeReceiveFilter for the data of {TASK_TRAIN!r}.")
    return dxo.meta or {}


def _weights(shareable: Shareable) -> dict[str, torch.Tensor]:
    dxo = from_shareable(shareable)
    if dxo.data_kind != DataKind.WEIGHTS:
        raise SettingsError(f"the server sent {dxo.data_kind}, expected the global model (WEIGHTS).")
    return {name: torch.as_tensor(value) for name, value in dxo.data.items()}


def _received(shareable: Shareable, request: TaskRequest) -> dict[str, torch.Tensor]:
    """Return the tensors that came beside the model; refuse a task from which the job's filters did not take them."""
    received = _meta(shareable).get(META_RECEIVED) or {}
    if request.exchanged and not received:
        raise SettingsError(
            "the server's tensors beside the model did not arrive: the job's configs need ExchangeSendFilter at the "
            f"server and ExchangeReceiveFilter at the sites, for the data of {TASK_TRAIN!r}."
        )
    return {name: torch.as_tensor(value) for name, value in received.items()}


def _labelled(dxo: DXO, task: Shareable) -> Shareable:
    """Return the answer to a task, with its run and the number of its round, which FLARE does not echo."""
    answer = dxo.to_shareable()
    answer.set_header(HEADER_RUN, _meta(task)[META_REQUEST]["run"])
    answer.set_header(AppConstants.CURRENT_ROUND, task.get_header(AppConstants.CURRENT_ROUND, 0))
    return answer
