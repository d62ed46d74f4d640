# SPDX-License-Identifier: Apache-2.0
"""The generalization gap: attached at a site, checked and taken off at the server."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants

from fdg_plugins.errors import SettingsError
from fdg_plugins.filters import GapCheckFilter, GapReportFilter
from fdg_plugins.messages import HEADER_REASON, HEADER_RUN, META_CHECKED_REPORTS, META_GAP, META_REPORT
from tests.controllers.federation_stubs import evaluation, train_report
from tests.flare_runner import site_context

ROUNDS = itertools.count()  # every answer is of a later round than the one before


@pytest.fixture
def fl_ctx(tmp_path: Path) -> FLContext:
    """The context of a site in the folder of the test."""
    return site_context("photo", tmp_path)


def result(
    received: tuple[float, float] = (2.0, 0.1),
    local: tuple[float, float] = (0.5, 0.8),
    round_number: int | None = None,
    meta: dict[str, Any] | None = None,
) -> Shareable:
    """Return a site's answer to ``train``, with (loss, accuracy) of the received and of its own model."""
    scores = {name: evaluation(pair[1], loss=pair[0]) for name, pair in (("received", received), ("local", local))}
    report = train_report(0.5, **scores).model_dump()
    shareable = DXO(
        DataKind.WEIGHT_DIFF, data={"w": torch.ones(2)}, meta={META_REPORT: report, **(meta or {})}
    ).to_shareable()
    shareable.set_peer_props({ReservedKey.IDENTITY_NAME: "photo"})
    shareable.set_header(AppConstants.CURRENT_ROUND, next(ROUNDS) if round_number is None else round_number)
    return shareable


def meta_of(shareable: Shareable) -> dict[str, Any]:
    return from_shareable(shareable).meta


def gap(answer: Shareable, fl_ctx: FLContext, metric: str = "loss") -> Any:
    """Return the gap that a site sends with its answer, None if none."""
    sent = GapReportFilter(metric).process(answer, fl_ctx)
    assert sent.get_return_code() == ReturnCode.OK
    return meta_of(sent).get(META_GAP)


def refusal(answer: Shareable, fl_ctx: FLContext) -> str:
    refused = GapReportFilter().process(answer, fl_ctx)
    assert refused.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    return str(refused.get_header(HEADER_REASON))


@pytest.mark.parametrize(("allowed", "leaves"), [(["class_means"], False), (["gap"], True)])
def test_gap_leaves_if_the_site_allows(tmp_path: Path, fl_ctx: FLContext, allowed: list[str], leaves: bool) -> None:
    (tmp_path / "local" / "fdg_site.json").write_text(json.dumps({"photo": {"allowed_reports": allowed}}))
    if leaves:
        assert [gap(result(), fl_ctx) for _ in range(2)] == [None, 1.5]
    else:
        assert refusal(result(), fl_ctx) == "site photo: the site forbids the report 'gap' (allowed_reports)."


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_gap_is_positive_if_the_received_model_is_worse(fl_ctx: FLContext, metric: str) -> None:
    first = gap(result((2.0, 0.1), (0.5, 0.75)), fl_ctx, metric)
    assert first is None, "in the first round there is no model of the site's own to compare with"
    answer = result((0.75, 0.5), (0.25, 0.625))
    assert gap(answer, fl_ctx, metric) == pytest.approx(0.25)
    assert gap(result((0.125, 0.75), (0.1, 0.9)), fl_ctx, metric) == pytest.approx(-0.125)
    kept = GapReportFilter(metric).process(result(), fl_ctx)
    assert meta_of(kept)[META_REPORT]["keeps_state"] is True
    refused = GapReportFilter("dice").process(result(), fl_ctx)
    assert refused.get_return_code() == ReturnCode.EXECUTION_EXCEPTION, "a score that the task does not have"


def test_a_loss_that_is_not_finite_gives_no_gap_and_none_in_the_next_round(fl_ctx: FLContext) -> None:
    losses = [((2.0, 0.1), (0.5, 0.8)), ((math.nan, 0.1), (math.inf, 0.1)), ((1.0, 0.1), (0.5, 0.1))]
    assert [gap(result(*one), fl_ctx) for one in [*losses, losses[-1]]] == [None, None, None, 0.5]


def test_repeated_round_and_lost_rounds(fl_ctx: FLContext, caplog: pytest.LogCaptureFixture) -> None:
    rounds = ((1000, 2.0, 0.5), (1001, 1.0, 0.3), (1001, 1.0, 0.3), (1002, 0.9, 0.2))
    gaps = [gap(result((received, 0.1), (local, 0.8), number), fl_ctx) for number, received, local in rounds]
    assert gaps == [None, pytest.approx(0.5), pytest.approx(0.5), pytest.approx(0.6)]
    told = refusal(result(round_number=1001), fl_ctx)
    assert told.startswith("what it knew before round 1002, to which the server has gone back, is gone (")
    assert "fdg_state/job holds nothing from before round 1002" in caplog.text
    assert gap(result(round_number=1003), fl_ctx) is not None, "what is kept is as it was"


def test_the_memory_of_the_site_belongs_to_the_run_and_outlives_its_job(fl_ctx: FLContext) -> None:
    for run, expected in (("run-1", None), ("run-2", None), ("run-1", 1.5)):
        answer = result()
        answer.set_header(HEADER_RUN, run)
        assert gap(answer, fl_ctx) == expected
        fl_ctx.set_prop(FLContextKey.CURRENT_RUN, "another-job", private=True, sticky=False)


def test_what_is_withheld_or_no_update_of_ours_has_no_gap(fl_ctx: FLContext) -> None:
    gap(result(), fl_ctx)
    withheld = result()
    meta_of(withheld)[META_REPORT].update(received=None, local=None, epoch_losses=None)
    assert gap(withheld, fl_ctx) is None
    error = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    assert GapReportFilter().process(error, fl_ctx) is GapCheckFilter().process(error, fl_ctx) is error
    bare = DXO(DataKind.WEIGHT_DIFF, data={"w": torch.ones(2)}).to_shareable()
    assert "LocalRound.answer" in refusal(bare, fl_ctx)
    assert refusal(result(meta={META_REPORT: "none"}), fl_ctx)


def test_only_the_loss_and_a_tasks_own_score_have_a_gap() -> None:
    assert GapReportFilter("accuracy").metric == "accuracy"
    for metric in ("f1", ["loss"]):
        with pytest.raises(SettingsError):
            GapReportFilter(metric)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, math.inf, 2.5, -1e300, 10**400, "0.5", True, torch.tensor(0.5)], ids=repr)
def test_gap_that_is_no_number_is_refused(value: Any, fl_ctx: FLContext, caplog: pytest.LogCaptureFixture) -> None:
    checked = meta_of(GapCheckFilter().process(result(meta={META_GAP: value}), fl_ctx))
    assert checked[META_CHECKED_REPORTS] == {}
    assert META_GAP not in checked
    assert "site photo: gap is" in caplog.text


def test_a_site_cannot_say_that_its_own_gap_was_checked(fl_ctx: FLContext) -> None:
    forged = result(meta={META_CHECKED_REPORTS: {"gap": 1e9}})
    found = meta_of(GapCheckFilter().process(forged, fl_ctx))[META_CHECKED_REPORTS]
    assert (found, found.looked_at) == ({}, {"gap"})


@pytest.mark.parametrize(
    ("loss", "value", "taken"), [(0.5, 0.75, True), (0.5, 1.25, False), (2.0, 1.25, True), (2.0, 2.25, False)]
)
def test_gap_is_at_most_one_or_the_loss(loss: float, value: float, taken: bool, fl_ctx: FLContext) -> None:
    checked = GapCheckFilter().process(result((loss, 0.1), meta={META_GAP: value}), fl_ctx)
    assert meta_of(checked)[META_CHECKED_REPORTS] == ({"gap": value} if taken else {})
