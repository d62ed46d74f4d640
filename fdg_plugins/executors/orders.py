# SPDX-License-Identifier: Apache-2.0
"""Converts between FLARE's messages and the site's work: a task becomes a validated order, an outcome an answer."""

from collections.abc import Mapping
from typing import Any

import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

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
from fdg_plugins.values import shorten


def read_order(task_name: str, site: str, job: str, shareable: Shareable) -> tuple[SiteTask, str]:
    """Return the order in a task of ``job`` and the run it belongs to; raise ``RequestError`` for an invalid task."""
    raw = _meta(shareable).get(META_REQUEST)
    if task_name == TASK_CENSUS:
        census = CensusRequest.read(raw, "census request", RequestError)
        return SiteTask(task_name, site, census.model_dump(mode="json"), job=job), census.run
    request = TaskRequest.read(raw, "task request", RequestError)
    round_number = _round(shareable, request.protocol.rounds)
    received = _received(shareable, request) if task_name == TASK_TRAIN else {}
    values = request.model_dump(mode="json")
    return SiteTask(task_name, site, values, round_number, _weights(shareable), received, job), request.run


def protocols_of(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the protocols in an order's request: one, and for a census also the stand-in's."""
    return [request[name] for name in ("protocol", "stand_in_protocol") if name in request]


def make_answer(task_name: str, outcome: TaskResult, task: Shareable) -> Shareable:
    """Return FLARE's answer to a task, given its outcome."""
    value, tensors = outcome.value, outcome.tensors
    if task_name in (TASK_CENSUS, TASK_EVALUATE):
        return DXO(DataKind.METRICS, data=value).to_shareable()
    if task_name == TASK_STATISTICS:
        return DXO(DataKind.METRICS, data=tensors["statistics"]).to_shareable()
    if task_name == TASK_PROBE:
        return _labelled(DXO(DataKind.METRICS, data=value, meta={META_SITE_REPORT: tensors["report"]}), task)
    return _labelled(DXO(DataKind.WEIGHT_DIFF, data=tensors["update"], meta=_training_meta(outcome)), task)


def _training_meta(outcome: TaskResult) -> dict[str, Any]:
    """Return the meta of an update: its number of samples, the training report, and a method's tensors if any."""
    value, tensors = outcome.value, outcome.tensors
    report: TrainReport = value["report"]
    meta: dict[str, Any] = {META_SAMPLES: value["samples"], META_REPORT: report.model_dump(mode="python")}
    if report.received is not None:
        meta[MetaKey.INITIAL_METRICS] = {f"val_{name}": value for name, value in report.received.values().items()}
    if tensors["report"]:
        meta[META_SITE_REPORT] = tensors["report"]
    return meta


def _meta(shareable: Shareable) -> dict[str, Any]:
    dxo = from_shareable(shareable)
    if dxo.data_kind == DataKind.COLLECTION:
        raise RequestError(f"the job's site config needs ExchangeReceiveFilter for the data of {TASK_TRAIN!r}.")
    return dxo.meta or {}


def _round(shareable: Shareable, rounds: int) -> int:
    """Return the round of a task, counted from 0; the round after the last one only evaluates.

    A site names its files by it, so that it raises ``RequestError`` for one that the run cannot have.
    """
    number = shareable.get_header(AppConstants.CURRENT_ROUND, 0)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= rounds:
        raise RequestError(f"the task is of round {shorten(number)}, expected an integer from 0 to {rounds}.")
    return number


def _weights(shareable: Shareable) -> dict[str, torch.Tensor]:
    dxo = from_shareable(shareable)
    if dxo.data_kind != DataKind.WEIGHTS:
        raise RequestError(f"the server sent {dxo.data_kind}, expected the global model (WEIGHTS).")
    return {name: torch.as_tensor(value) for name, value in dxo.data.items()}


def _received(shareable: Shareable, request: TaskRequest) -> dict[str, torch.Tensor]:
    """Return the tensors sent with the model; raise ``RequestError`` if the job's filters did not extract them."""
    received = _meta(shareable).get(META_RECEIVED) or {}
    if request.exchanged and not received:
        raise RequestError(
            "the server's tensors beside the model did not arrive: the job's configs need ExchangeSendFilter at the "
            f"server and ExchangeReceiveFilter at the sites, for the data of {TASK_TRAIN!r}."
        )
    return {name: torch.as_tensor(value) for name, value in received.items()}


def _labelled(dxo: DXO, task: Shareable) -> Shareable:
    """Return the answer to a task, with its run and round number, which FLARE does not echo."""
    answer = dxo.to_shareable()
    answer.set_header(HEADER_RUN, _meta(task)[META_REQUEST]["run"])
    answer.set_header(AppConstants.CURRENT_ROUND, task.get_header(AppConstants.CURRENT_ROUND, 0))
    return answer
