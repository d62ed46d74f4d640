# SPDX-License-Identifier: Apache-2.0
"""The FLARE Executor of a site: answers census, probe, train and evaluate, and never with a traceback."""

import os
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

from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.executors.audit import audit_event
from fdg_plugins.executors.session import SiteSession
from fdg_plugins.executors.training import ShouldStop, Stopped
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
)
from fdg_plugins.protocol import Protocol
from fdg_plugins.quiet import quiet_console
from fdg_plugins.site_config import site_config_of
from fdg_plugins.state import state_folder
from fdg_plugins.storage import read_json, user_path, write_json

CENSUS_FILE = "fdg_census.json"


class SiteExecutor(Executor):
    """Trains and evaluates on the site's own data as the server's protocol says; takes no settings from the job.

    Where the data lies, which domain it is and where to compute is the site's own config. What must survive a
    round lies in the site's run folder, since the simulator may use a new process for every task.
    """

    def __init__(self) -> None:
        super().__init__()
        self._session: SiteSession | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Teach FLARE's serializer about tensors, keep its console to what a person reads, audit what leaves."""
        if event_type == EventType.START_RUN:
            fobs.register(TensorDecomposer)
            quiet_console()
        audit_event(event_type, fl_ctx)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Return the answer to one task; an error reply carries its reason, in one sentence, as a header."""
        site = fl_ctx.get_identity_name()
        tasks = {
            TASK_CENSUS: self._census,
            TASK_PROBE: self._probe,
            TASK_TRAIN: self._train,
            TASK_EVALUATE: self._evaluate,
        }
        if task_name not in tasks:
            return make_reply(ReturnCode.TASK_UNKNOWN, {HEADER_REASON: f"unknown task {task_name!r}."})
        try:
            return tasks[task_name](site, shareable, fl_ctx, lambda: bool(abort_signal.triggered))
        except Stopped:
            self.log_info(fl_ctx, f"{self._mark()}site {site} | task {task_name} was aborted.")
            return make_reply(ReturnCode.TASK_ABORTED)
        except FDGError as error:
            self.log_error(fl_ctx, f"{self._mark()}site {site} | task {task_name} failed: {error}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: str(error)})
        except Exception as error:  # noqa: BLE001 - the boundary to FLARE: the server must learn why, the site goes on
            self.log_exception(fl_ctx, f"{self._mark()}site {site} | task {task_name} failed: {error}")
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
            return make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: reason})

    # --- tasks ---

    def _census(self, site: str, shareable: Shareable, fl_ctx: FLContext, should_stop: ShouldStop) -> Shareable:
        request = CensusRequest.read(_meta(shareable).get(META_REQUEST), "census request", SettingsError)
        session = self._open(site, request.protocol, fl_ctx)
        if session.stand_in:
            session = self._open(site, request.stand_in_protocol, fl_ctx)
        reply = session.census()
        folder = state_folder(fl_ctx.get_engine().get_workspace(), request.run)
        write_json(folder / CENSUS_FILE, {"split": reply.split, "split_hash": reply.split_hash})
        counts = f"{reply.num_train} train, {reply.num_validation} validation, {reply.num_test} in all"
        self._say(session, fl_ctx, f"domain {reply.domain}: {counts}; split {reply.split}; device {reply.device}")
        for skipped in reply.skipped:
            self._say(session, fl_ctx, f"skipped {skipped}, which is known to be mislabelled")
        return DXO(DataKind.METRICS, data=reply.model_dump(mode="json")).to_shareable()

    def _probe(self, site: str, shareable: Shareable, fl_ctx: FLContext, should_stop: ShouldStop) -> Shareable:
        session = self._resume(site, shareable, fl_ctx)
        tensors = session.probe(_weights(shareable), should_stop)
        meta = {META_SITE_REPORT: tensors}
        return _answer(DXO(DataKind.METRICS, data={"count": len(session.data.train)}, meta=meta), shareable)

    def _train(self, site: str, shareable: Shareable, fl_ctx: FLContext, should_stop: ShouldStop) -> Shareable:
        session = self._resume(site, shareable, fl_ctx)
        round_number = int(shareable.get_header(AppConstants.CURRENT_ROUND, 0))
        protocol = session.protocol

        def on_epoch(epoch: int, loss: float) -> None:
            where = f"round {round_number + 1}/{protocol.rounds} | epoch {epoch + 1}/{protocol.local_epochs}"
            self._say(session, fl_ctx, f"{where} | train loss {loss:.4f}")

        received = _received(shareable)
        result = session.train(_weights(shareable), round_number, should_stop, on_epoch, received)
        meta: dict[str, Any] = {
            META_SAMPLES: len(session.data.train),
            META_REPORT: result.report.model_dump(mode="python"),
        }
        if result.report.received is not None:
            meta[MetaKey.INITIAL_METRICS] = {"val_accuracy": result.report.received.accuracy}
        if result.tensors:
            meta[META_SITE_REPORT] = result.tensors
        return _answer(DXO(DataKind.WEIGHT_DIFF, data=result.update, meta=meta), shareable)

    def _evaluate(self, site: str, shareable: Shareable, fl_ctx: FLContext, should_stop: ShouldStop) -> Shareable:
        session = self._resume(site, shareable, fl_ctx)
        held_out = session.domain == session.protocol.target
        model = session.load(_weights(shareable))
        evaluation = session.evaluate(model, "test" if held_out else "validation", should_stop)
        return DXO(DataKind.METRICS, data=evaluation.model_dump(mode="python")).to_shareable()

    # --- what a task needs ---

    def _resume(self, site: str, shareable: Shareable, fl_ctx: FLContext) -> SiteSession:
        """Return the session of the protocol in a task, on the very data that the census counted."""
        request = TaskRequest.read(_meta(shareable).get(META_REQUEST), "task request", SettingsError)
        session = self._open(site, request.protocol, fl_ctx)
        if session.stand_in != request.stand_in:
            raise DataError("the data changed between the real data set and the STAND-IN since the census.")
        counted = read_json(state_folder(fl_ctx.get_engine().get_workspace(), request.run) / CENSUS_FILE)
        if counted.get("split_hash") != session.data.split_hash:
            raise DataError(
                f"split {session.data.split} has the hash {session.data.split_hash}, "
                f"but the census counted {counted.get('split_hash')}: the data folder has changed."
            )
        return session

    def _open(self, site: str, protocol: Protocol, fl_ctx: FLContext) -> SiteSession:
        if self._session is None or self._session.protocol != protocol:
            config = site_config_of(site, fl_ctx)
            if config.threads is not None:
                torch.set_num_threads(config.threads)
            cache = os.environ.get("FDG_CACHE", "").strip()
            folder = user_path(cache, os.environ) if cache else None
            self._session = SiteSession(site, config, protocol, folder)
        return self._session

    def _say(self, session: SiteSession, fl_ctx: FLContext, text: str) -> None:
        self.log_info(fl_ctx, f"{self._mark()}site {session.site} | {text}")

    def _mark(self) -> str:
        return "STAND-IN | " if self._session is not None and self._session.stand_in else ""


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


def _received(shareable: Shareable) -> dict[str, torch.Tensor]:
    """Return the tensors that came beside the model; refuse a task from which the job's filters did not take them."""
    meta = _meta(shareable)
    request = TaskRequest.read(meta.get(META_REQUEST), "task request", SettingsError)
    received = meta.get(META_RECEIVED) or {}
    if request.exchanged and not received:
        raise SettingsError(
            "the server's tensors beside the model did not arrive: the job's configs need ExchangeSendFilter at the "
            f"server and ExchangeReceiveFilter at the sites, for the data of {TASK_TRAIN!r}."
        )
    return {name: torch.as_tensor(value) for name, value in received.items()}


def _answer(dxo: DXO, task: Shareable) -> Shareable:
    """Return the answer to a task, with its run and the number of its round, which FLARE does not echo."""
    answer = dxo.to_shareable()
    answer.set_header(HEADER_RUN, _meta(task)[META_REQUEST]["run"])
    answer.set_header(AppConstants.CURRENT_ROUND, task.get_header(AppConstants.CURRENT_ROUND, 0))
    return answer
