# SPDX-License-Identifier: Apache-2.0
"""Tensors of a method on their way: beside the model down, beside the update up, checked before they count."""

from typing import Any

import pytest
import torch
from nvflare.apis.client import Client
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode, ServerCommandKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants
from nvflare.fuel.utils import fobs

from fdg_plugins.filters import (
    EXCHANGE_PROP,
    ExchangeCheckFilter,
    ExchangeReceiveFilter,
    ExchangeReportFilter,
    ExchangeRound,
    ExchangeSendFilter,
    GapCheckFilter,
)
from fdg_plugins.filters.wire import PART_MAIN, PART_TENSORS
from fdg_plugins.messages import META_CHECKED_REPORTS, META_GAP, META_RECEIVED, META_SITE_REPORT
from fdg_plugins.models import build_model
from fdg_plugins.objectives import Exchange, make_objective
from fdg_plugins.plugins.reports import CheckedReports
from fdg_plugins.testing.inputs import same_bits

pytestmark = pytest.mark.usefixtures("wire")

STATE = build_model("convnet", 3, seed=0).state_dict()
UPDATE = {name: torch.zeros_like(value) for name, value in STATE.items()}
REPORT = {"class_means": torch.ones(2, 128), "class_counts": torch.tensor([4, 0, 2])}


@pytest.fixture
def exchange() -> Exchange:
    """The exchange of FedDIM in its first round."""
    objective = make_objective("dim")
    made = objective.exchange(build_model("convnet", 3, seed=0), 3)
    assert made is not None
    made.begin_round(STATE)
    return objective.named(made)


def server(exchange: Exchange, task: str = "train") -> FLContext:
    context = FLContext()
    context.set_prop(EXCHANGE_PROP, ExchangeRound(exchange, 4), private=True, sticky=False)
    context.set_prop(FLContextKey.TASK_NAME, task, private=True, sticky=False)
    return context


def packed(report: Any = REPORT, round_number: int = 4, meta: dict[str, Any] | None = None) -> Shareable:
    given = {**({} if report is None else {META_SITE_REPORT: report}), **(meta or {})}
    result = DXO(DataKind.WEIGHT_DIFF, data=dict(UPDATE), meta={"NUM_STEPS_CURRENT_ROUND": 6, **given}).to_shareable()
    result.set_header(AppConstants.CURRENT_ROUND, round_number)
    return ExchangeReportFilter().process(result, FLContext())


def checked(sent: Shareable, context: FLContext) -> tuple[DXO, CheckedReports]:
    """Return what the server makes of a message, through FLARE's serializer, from the authenticated site photo."""
    arrived: Shareable = fobs.loads(fobs.dumps(sent))
    arrived.set_header(ServerCommandKey.FL_CLIENT, Client("photo", "token"))
    arrived.set_peer_props({ReservedKey.IDENTITY_NAME: "cartoon"})  # which the site may say itself
    dxo = from_shareable(ExchangeCheckFilter().process(arrived, context))
    found = dxo.meta[META_CHECKED_REPORTS]
    assert isinstance(found, CheckedReports)
    return dxo, found


def test_what_the_exchange_sends_arrives_beside_the_model_which_is_unchanged(exchange: Exchange) -> None:
    exchange.finish({"photo": exchange.read("photo", REPORT, UPDATE)})
    exchange.begin_round(STATE)
    task = DXO(DataKind.WEIGHTS, data=dict(STATE), meta={"fdg_request": {"a": 1}}).to_shareable()
    task.set_header(AppConstants.CURRENT_ROUND, 4)
    sent = ExchangeSendFilter().process(task, server(exchange))
    arrived = ExchangeReceiveFilter().process(fobs.loads(fobs.dumps(sent)), FLContext())
    dxo = from_shareable(arrived)
    assert dxo.data_kind == DataKind.WEIGHTS
    assert same_bits(dxo.data, dict(STATE))
    assert dxo.meta["fdg_request"] == {"a": 1}
    assert same_bits(dxo.meta[META_RECEIVED], dict(exchange.broadcast()))
    assert arrived.get_header(AppConstants.CURRENT_ROUND) == 4


def test_a_report_arrives_at_the_exchange_and_leaves_no_trace_on_the_update(exchange: Exchange) -> None:
    sent = packed()
    assert from_shareable(sent).data.keys() == {PART_MAIN, PART_TENSORS}, "privacy filters see its parts"
    dxo, reports = checked(sent, server(exchange))
    assert dxo.data_kind == DataKind.WEIGHT_DIFF
    assert dxo.data.keys() == UPDATE.keys()
    assert dxo.meta.keys() == {"NUM_STEPS_CURRENT_ROUND", META_CHECKED_REPORTS}
    assert (reports.refused, reports.num_bytes) == ({}, sum(value.nbytes for value in REPORT.values()))
    assert exchange.broadcast() == {}, "the filter changes nothing"
    exchange.finish({"photo": reports["class_means"]})
    assert exchange.broadcast()["present"].tolist() == [True, False, True]
    assert checked(sent, server(exchange, "probe"))[1].looked_at == set(), "in another phase it looks at none"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (packed({**REPORT, "class_counts": torch.tensor([4, 0, -2])}), "'class_counts' has a number outside"),
        (packed({"class_means": REPORT["class_means"]}), "'class_counts' is missing"),
        (packed(None), "sent nothing"),
        (packed(None, meta={META_CHECKED_REPORTS: {"class_means": REPORT}}), "sent nothing"),
        (packed(round_number=3), "its report is of round 3, expected 4."),
    ],
)
def test_refused_report_leaves_the_update(exchange: Exchange, sent: Shareable, reason: str) -> None:
    dxo, reports = checked(sent, server(exchange))
    assert dxo.data.keys() == UPDATE.keys()
    assert reports == {}
    assert reports.refused["class_means"].startswith(f"site photo: {reason}")


def test_what_the_filters_before_it_checked_stays(exchange: Exchange) -> None:
    dxo, _ = checked(packed(meta={META_GAP: 0.25}), server(exchange))
    found = from_shareable(GapCheckFilter().process(dxo.to_shareable(), server(exchange))).meta[META_CHECKED_REPORTS]
    assert found.keys() == found.looked_at == {"class_means", "gap"}


def collection(main: Any, tensors: Any = None) -> Shareable:
    return DXO(DataKind.COLLECTION, data={PART_MAIN: main, PART_TENSORS: tensors}).to_shareable()


def around(data: Any) -> Shareable:
    """Return a collection whose update has such ``data`` as FLARE's DXO refuses when it is made."""
    main = DXO(DataKind.WEIGHT_DIFF, data={})
    main.data = data
    return collection(main, DXO(DataKind.WEIGHTS, data={}))


@pytest.mark.parametrize(
    "junk",
    [
        around([1.0]),
        collection(3),
        collection({"kind": "WEIGHT_DIFF"}, {}),
        Shareable(),
        make_reply(ReturnCode.EXECUTION_EXCEPTION),
    ],
)
def test_what_is_no_answer_of_ours_is_left_to_the_workflow(exchange: Exchange, junk: Shareable) -> None:
    for filter_ in (ExchangeCheckFilter(), ExchangeReportFilter(), ExchangeSendFilter(), ExchangeReceiveFilter()):
        assert filter_.process(junk, server(exchange)) is junk
