# SPDX-License-Identifier: Apache-2.0
"""The generalization gap: attached at a site, checked and taken off at the server."""

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.filters import GapCheckFilter, GapReportFilter
from fdg_plugins.messages import META_CHECKED_REPORTS, META_GAP, META_REPORT


@pytest.fixture
def site_context(tmp_path: Path) -> FLContext:
    """A site's context, as far as a filter looks into it: an engine whose workspace has a run folder."""
    context = FLContext()
    workspace = SimpleNamespace(get_run_dir=lambda job_id: str(tmp_path))
    context.set_prop(FLContextKey.CURRENT_RUN, "job", private=True, sticky=False)
    engine = SimpleNamespace(get_workspace=lambda: workspace, fire_event=lambda event, fl_ctx: None)
    context.get_engine = lambda: engine  # type: ignore[method-assign]
    return context


def evaluation(loss: float, accuracy: float) -> dict[str, Any]:
    return {"split": "validation", "loss": loss, "accuracy": accuracy, "count": 10}


def result(received: tuple[float, float], local: tuple[float, float], **meta: Any) -> Shareable:
    """Return a site's answer to ``train``, with (loss, accuracy) of the received and of its own model."""
    report = {
        "domain": "photo",
        "received": evaluation(*received),
        "local": evaluation(*local),
        "epoch_losses": (1.0,),
        "steps": 1,
        "learning_rate": 0.1,
        "seconds": 1.0,
    }
    update = DXO(DataKind.WEIGHT_DIFF, data={"w": torch.ones(2)}, meta={META_REPORT: report, **meta})
    shareable = update.to_shareable()
    shareable.set_peer_props({ReservedKey.IDENTITY_NAME: "photo"})
    return shareable


def meta_of(shareable: Shareable) -> dict[str, Any]:
    return from_shareable(shareable).meta


def test_the_gap_is_the_loss_now_received_less_the_sites_own_loss_of_last_time(site_context: FLContext) -> None:
    first = GapReportFilter().process(result((2.0, 0.1), (0.5, 0.8)), site_context)
    assert META_GAP not in meta_of(first), "in the first round there is no model of the site's own to compare with"
    # A new object: the process of the last round is gone.
    second = GapReportFilter().process(result((0.75, 0.7), (0.25, 0.9)), site_context)
    assert meta_of(second)[META_GAP] == pytest.approx(0.75 - 0.5)
    third = GapReportFilter().process(result((0.125, 0.7), (0.1, 0.9)), site_context)
    assert meta_of(third)[META_GAP] == pytest.approx(0.125 - 0.25)


def test_with_accuracies_the_sign_is_turned(site_context: FLContext) -> None:
    GapReportFilter("accuracy").process(result((2.0, 0.1), (0.5, 0.8)), site_context)
    second = GapReportFilter("accuracy").process(result((0.75, 0.7), (0.25, 0.9)), site_context)
    assert meta_of(second)[META_GAP] == pytest.approx(0.8 - 0.7)


def test_a_loss_that_is_not_finite_gives_no_gap_and_none_in_the_next_round(site_context: FLContext) -> None:
    GapReportFilter().process(result((2.0, 0.1), (0.5, 0.8)), site_context)
    broken = GapReportFilter().process(result((math.nan, 0.1), (math.inf, 0.1)), site_context)
    assert META_GAP not in meta_of(broken)
    assert META_GAP not in meta_of(GapReportFilter().process(result((1.0, 0.1), (0.5, 0.1)), site_context))
    assert META_GAP in meta_of(GapReportFilter().process(result((1.0, 0.1), (0.5, 0.1)), site_context))


def test_an_error_reply_passes_untouched_and_keeps_the_state(site_context: FLContext) -> None:
    GapReportFilter().process(result((2.0, 0.1), (0.5, 0.8)), site_context)
    error = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    assert GapReportFilter().process(error, site_context) is error
    assert GapCheckFilter().process(error, site_context) is error
    after = GapReportFilter().process(result((0.75, 0.7), (0.25, 0.9)), site_context)
    assert meta_of(after)[META_GAP] == pytest.approx(0.25)


def test_an_update_without_its_report_is_an_error_that_says_so(site_context: FLContext) -> None:
    bare = DXO(DataKind.WEIGHT_DIFF, data={"w": torch.ones(2)}).to_shareable()
    with pytest.raises(DataError, match="report of the local training"):
        GapReportFilter().process(bare, site_context)


def test_the_server_takes_the_gap_off_and_hands_it_on_as_checked(site_context: FLContext) -> None:
    checked = GapCheckFilter().process(result((2.0, 0.1), (0.5, 0.8), **{META_GAP: 0.25}), site_context)
    assert META_GAP not in meta_of(checked)
    assert meta_of(checked)[META_CHECKED_REPORTS] == {"gap": 0.25}
    assert from_shareable(checked).data.keys() == {"w"}


def garbage() -> Iterator[Any]:
    yield from (math.nan, math.inf, -math.inf, "0.5", True, [0.5], {"gap": 1.0}, torch.tensor(0.5))


@pytest.mark.parametrize("gap", list(garbage()), ids=repr)
def test_a_gap_that_is_no_finite_number_is_refused_and_the_site_named(
    gap: Any, site_context: FLContext, caplog: pytest.LogCaptureFixture
) -> None:
    checked = GapCheckFilter().process(result((2.0, 0.1), (0.5, 0.8), **{META_GAP: gap}), site_context)
    assert meta_of(checked)[META_CHECKED_REPORTS] == {}
    assert "site photo: gap is" in caplog.text


def test_a_site_cannot_hand_in_reports_that_it_calls_checked(site_context: FLContext) -> None:
    forged = result((2.0, 0.1), (0.5, 0.8), **{META_CHECKED_REPORTS: {"gap": 1e9}})
    assert meta_of(GapCheckFilter().process(forged, site_context))[META_CHECKED_REPORTS] == {}


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(SettingsError, match="metric is 'f1', expected one of accuracy, loss"):
        GapReportFilter("f1")
