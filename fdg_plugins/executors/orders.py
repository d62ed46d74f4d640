# SPDX-License-Identifier: Apache-2.0
"""Converts between FLARE's messages and the site's work: a task becomes a validated order, an outcome an answer."""

from collections.abc import Mapping
from typing import Any

import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

from fdg_plugins.errors import shorten
from fdg_plugins.executors.work import RequestError, SiteTask, TaskResult
from fdg_plugins.messages import (
    HEADER_RUN,
    META_RECEIVED,
    META_REPORT,
    META_REQUEST,
    META_SAMPLES,
    META_SITE_REPORT,
    TASK_CENSUS,
    TASK_EVALUATE,
    TASK_PROBE,
    TASK_STATISTICS,
    TASK_TRAIN,
    CensusRequest,
    TaskRequest,
    TrainReport,
)


def read_order(task_name: str, site: str, job: str, shareable: Shareable) -> tuple[SiteTask, str]:
    """Return the order in a task of ``job`` and the run it belongs to; raise ``RequestError`` for an invalid task."""
    meta = _meta(shareable)
    raw = meta.get(META_REQUEST)
    if task_name == TASK_CENSUS:
        census = CensusRequest.read(raw, "census request", RequestError)
        return SiteTask(task_name, site, census.model_dump(mode="json"), job=job), census.run
    request, dxo = TaskRequest.read(raw, "task request", RequestError), from_shareable(shareable)
    # Counted from 0; the round after the last one only evaluates. The site names its files by it.
    number = shareable.get_header(AppConstants.CURRENT_ROUND, 0)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= request.protocol.rounds:
        raise RequestError(f"the task is of round {shorten(number)}, expected 0 to {request.protocol.rounds}.")
    if dxo.data_kind != DataKind.WEIGHTS:
        raise RequestError(f"the server sent {dxo.data_kind}, expected the global model (WEIGHTS).")
    received = (meta.get(META_RECEIVED) or {}) if task_name == TASK_TRAIN else {}
    if task_name == TASK_TRAIN and request.exchanged and not received:
        raise RequestError(
            "the server's tensors beside the model did not arrive: the job's configs need ExchangeSendFilter at the "
            f"server and ExchangeReceiveFilter at the sites, for the data of {TASK_TRAIN!r}."
        )
    state, received = (
        {name: torch.as_tensor(value) for name, value in tensors.items()} for tensors in (dxo.data, received)
    )
    return SiteTask(task_name, site, request.model_dump(mode="json"), number, state, received, job), request.run


def protocols_of(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the protocols in an order's request: one, and for a census also the stand-in's."""
    return [request[name] for name in ("protocol", "stand_in_protocol") if name in request]


def make_answer(task_name: str, outcome: TaskResult, task: Shareable) -> Shareable:
    """Return FLARE's answer to a task, given its outcome; a report needs its run and round, which FLARE drops."""
    value, tensors = outcome.value, outcome.tensors
    if task_name in (TASK_CENSUS, TASK_EVALUATE):
        return DXO(DataKind.METRICS, data=value).to_shareable()
    if task_name == TASK_STATISTICS:
        return DXO(DataKind.METRICS, data=tensors["statistics"]).to_shareable()
    if task_name == TASK_PROBE:
        answer = DXO(DataKind.METRICS, data=value, meta={META_SITE_REPORT: tensors["report"]}).to_shareable()
    else:
        answer = DXO(DataKind.WEIGHT_DIFF, data=tensors["update"], meta=_training_meta(outcome)).to_shareable()
    answer.set_header(HEADER_RUN, _meta(task)[META_REQUEST]["run"])
    answer.set_header(AppConstants.CURRENT_ROUND, task.get_header(AppConstants.CURRENT_ROUND, 0))
    return answer


def _training_meta(outcome: TaskResult) -> dict[str, Any]:
    """Return the meta of an update: its number of samples, the training report, and a method's tensors if any."""
    report: TrainReport = outcome.value["report"]
    meta = {META_SAMPLES: outcome.value["samples"], META_REPORT: report.model_dump(mode="python")}
    if report.received is not None:
        meta[MetaKey.INITIAL_METRICS] = {f"val_{name}": value for name, value in report.received.values().items()}
    if outcome.tensors["report"]:
        meta[META_SITE_REPORT] = outcome.tensors["report"]
    return meta


def _meta(shareable: Shareable) -> dict[str, Any]:
    dxo = from_shareable(shareable)
    if dxo.data_kind == DataKind.COLLECTION:
        raise RequestError(f"the job's site config needs ExchangeReceiveFilter for the data of {TASK_TRAIN!r}.")
    return dxo.meta or {}
