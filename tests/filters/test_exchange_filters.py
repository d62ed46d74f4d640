# SPDX-License-Identifier: Apache-2.0
"""Tensors of a method on their way: beside the model down, beside the update up, checked before they count."""

from collections.abc import Mapping
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
from fdg_plugins.filters.wire import META_ROUND, PART_MAIN, PART_TENSORS
from fdg_plugins.messages import META_CHECKED_REPORTS, META_GAP, META_RECEIVED, META_SITE_REPORT
from fdg_plugins.models import build_model
from fdg_plugins.objectives import Exchange, make_objective
from fdg_plugins.plugins.reports import CheckedReports

pytestmark = pytest.mark.usefixtures("wire")

STATE = build_model("convnet", 3, seed=0).state_dict()
UPDATE = {name: torch.zeros_like(value) for name, value in STATE.items()}
REPORT = {"class_means": torch.ones(2, 128), "class_counts": torch.tensor([4, 0, 2])}


@pytest.fixture
def exchange() -> Exchange:
    """The exchange of FedDIM in its first round."""
    made = make_objective("dim").exchange(build_model("convnet", 3, seed=0), 3)
    assert made is not None
    made.begin_round(STATE)
    return made


def server(exchange: Exchange, round_number: int = 4, task: str = "train") -> FLContext:
    context = FLContext()
    context.set_prop(EXCHANGE_PROP, ExchangeRound(exchange, round_number), private=True, sticky=False)
    context.set_prop(FLContextKey.TASK_NAME, task, private=True, sticky=False)
    return context


def task_data() -> Shareable:
    task = DXO(DataKind.WEIGHTS, data=dict(STATE), meta={"fdg_request": {"a": 1}}).to_shareable()
    task.set_header(AppConstants.CURRENT_ROUND, 4)
    return task


def answer(report: Any = REPORT, round_number: int = 4, meta: dict[str, Any] | None = None) -> Shareable:
    """Return what the executor of a site gives, before any filter."""
    given = {**({} if report is None else {META_SITE_REPORT: report}), **(meta or {})}
    result = DXO(DataKind.WEIGHT_DIFF, data=dict(UPDATE), meta={"NUM_STEPS_CURRENT_ROUND": 6, **given}).to_shareable()
    result.set_header(AppConstants.CURRENT_ROUND, round_number)
    return result


def sent(shareable: Shareable, site: str = "photo") -> Shareable:
    """Return what arrives at the server, through FLARE's serializer, from an authenticated site."""
    arrived: Shareable = fobs.loads(fobs.dumps(shareable))
    arrived.set_header(ServerCommandKey.FL_CLIENT, Client(site, "token"))
    return arrived


def checked(shareable: Shareable, context: FLContext) -> DXO:
    return from_shareable(ExchangeCheckFilter().process(sent(shareable), context))


def reports(dxo: DXO) -> CheckedReports:
    """Return the reports that the filter handed on."""
    found = dxo.meta[META_CHECKED_REPORTS]
    assert isinstance(found, CheckedReports)
    return found


def learned(exchange: Exchange) -> Exchange:
    exchange.finish({"photo": exchange.read("photo", REPORT, UPDATE)})
    exchange.begin_round(STATE)
    return exchange


# --- down -------------------------------------------------------------------------------------------


def test_what_the_exchange_sends_arrives_beside_the_model_which_is_unchanged(exchange: Exchange) -> None:
    down = learned(exchange).broadcast()
    packed = ExchangeSendFilter().process(task_data(), server(exchange))
    arrived = ExchangeReceiveFilter().process(fobs.loads(fobs.dumps(packed)), FLContext())
    dxo = from_shareable(arrived)
    assert dxo.data_kind == DataKind.WEIGHTS
    assert all(torch.equal(dxo.data[name], value) for name, value in STATE.items())
    assert dxo.meta["fdg_request"] == {"a": 1}
    assert dxo.meta[META_RECEIVED].keys() == down.keys()
    assert all(torch.equal(dxo.meta[META_RECEIVED][name], value) for name, value in down.items())
    assert arrived.get_header(AppConstants.CURRENT_ROUND) == 4


# --- up ---------------------------------------------------------------------------------------------


def test_a_report_arrives_at_the_exchange_and_leaves_no_trace_on_the_update(exchange: Exchange) -> None:
    packed = ExchangeReportFilter().process(answer(), FLContext())
    assert from_shareable(packed).data.keys() == {PART_MAIN, PART_TENSORS}, "privacy filters see its parts"
    dxo = checked(packed, server(exchange))
    assert dxo.data_kind == DataKind.WEIGHT_DIFF
    assert dxo.data.keys() == UPDATE.keys()
    size = sum(value.nbytes for value in REPORT.values())
    assert dxo.meta.keys() == {"NUM_STEPS_CURRENT_ROUND", META_CHECKED_REPORTS}
    assert (reports(dxo).refused, reports(dxo).num_bytes) == ({}, size)
    assert exchange.broadcast() == {}, "the filter changes nothing"
    exchange.finish({"photo": reports(dxo)["class_means"]})
    assert exchange.broadcast()["present"].tolist() == [True, False, True]


def test_the_site_is_the_authenticated_one_whatever_the_message_says(exchange: Exchange) -> None:
    broken = {**REPORT, "class_counts": torch.tensor([4, 0, -2])}
    arrived = sent(ExchangeReportFilter().process(answer(broken), FLContext()), "photo")
    arrived.set_peer_props({ReservedKey.IDENTITY_NAME: "cartoon"})
    dxo = from_shareable(ExchangeCheckFilter().process(arrived, server(exchange)))
    assert reports(dxo).refused["class_means"].startswith("site photo: ")


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        ({**REPORT, "class_counts": torch.tensor([4, 0, -2])}, "site photo: 'class_counts' has a number outside"),
        ({**REPORT, "class_means": torch.full((2, 128), torch.nan)}, "site photo: 'class_means' has 256 values"),
        ({"class_means": REPORT["class_means"]}, "site photo: 'class_counts' is missing"),
        (None, "site photo: sent nothing"),
    ],
)
def test_a_report_that_cannot_be_used_is_refused_by_name_and_the_update_stays(
    exchange: Exchange, report: Mapping[str, torch.Tensor] | None, reason: str
) -> None:
    dxo = checked(ExchangeReportFilter().process(answer(report), FLContext()), server(exchange))
    assert dxo.data.keys() == UPDATE.keys()
    assert reports(dxo).refused["class_means"].startswith(reason)
    assert reports(dxo) == {}
    late = checked(ExchangeReportFilter().process(answer(round_number=3), FLContext()), server(exchange))
    assert reports(late).refused["class_means"] == "site photo: its report is of round 3, expected 4."


def test_a_site_cannot_say_that_its_own_report_was_checked(exchange: Exchange) -> None:
    forged = answer(None, meta={META_CHECKED_REPORTS: {"class_means": REPORT}})
    found = reports(checked(forged, server(exchange)))
    assert found == {}
    assert "class_means" in found.refused


def test_what_the_filters_before_it_checked_stays(exchange: Exchange) -> None:
    packed = sent(ExchangeReportFilter().process(answer(meta={META_GAP: 0.25}), FLContext()))
    both = ExchangeCheckFilter().process(packed, server(exchange))
    found = reports(from_shareable(GapCheckFilter().process(both, server(exchange))))
    assert found.keys() == found.looked_at == {"class_means", "gap"}


def around(data: Any) -> Shareable:
    """Return a collection whose update has such ``data`` as FLARE's DXO refuses when it is made."""
    main = DXO(DataKind.WEIGHT_DIFF, data={})
    main.data = data
    return DXO(DataKind.COLLECTION, data={PART_MAIN: main, PART_TENSORS: DXO(DataKind.WEIGHTS, data={})}).to_shareable()


@pytest.mark.parametrize(
    "junk",
    [
        around([1.0]),
        DXO(DataKind.COLLECTION, data={PART_MAIN: 3, PART_TENSORS: None}).to_shareable(),
        DXO(DataKind.COLLECTION, data={PART_MAIN: {"kind": "WEIGHT_DIFF"}, PART_TENSORS: {}}).to_shareable(),
        Shareable(),
        make_reply(ReturnCode.EXECUTION_EXCEPTION),
    ],
)
def test_what_is_no_answer_of_ours_is_left_to_the_workflow(exchange: Exchange, junk: Shareable) -> None:
    for filter_ in (ExchangeCheckFilter(), ExchangeReportFilter(), ExchangeSendFilter(), ExchangeReceiveFilter()):
        assert filter_.process(junk, server(exchange)) is junk


@pytest.mark.parametrize("tensors", [3, {"class_means": {"deep": [1]}, 4: None}, [REPORT]])
def test_junk_beside_an_update_is_refused_by_name(exchange: Exchange, tensors: Any) -> None:
    beside = DXO(DataKind.APP_DEFINED, data=tensors, meta={META_ROUND: 4})
    main = DXO(DataKind.WEIGHT_DIFF, data=dict(UPDATE))
    junk = DXO(DataKind.COLLECTION, data={PART_MAIN: main, PART_TENSORS: beside}).to_shareable()
    assert reports(checked(junk, server(exchange))).refused["class_means"].startswith("site photo: ")
