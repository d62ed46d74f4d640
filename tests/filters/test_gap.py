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
from fdg_plugins.filters.gap import gap_filters
from fdg_plugins.messages import HEADER_REASON, HEADER_RUN, META_CHECKED_REPORTS, META_GAP, META_REPORT
from fdg_plugins.tasks import ScoreKind
from tests.controllers.federation_stubs import evaluation, train_report
from tests.flare_runner import SiteWorkspace
from tests.flare_runner import site_context as context_of


@pytest.fixture
def site_context(tmp_path: Path) -> FLContext:
    """A site's context, whose configs are in the folder of the test."""
    return context_of("photo", SiteWorkspace(tmp_path, tmp_path))


def reason(reply: Shareable) -> str:
    """Return why an answer became an error."""
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    return str(reply.get_header(HEADER_REASON))


ROUNDS = itertools.count()  # every answer is of a later round than the one before


def result(
    received: tuple[float, float],
    local: tuple[float, float],
    round_number: int | None = None,
    meta: dict[str, Any] | None = None,
) -> Shareable:
    """Return a site's answer to ``train``, with (loss, accuracy) of the received and of its own model."""
    scores = {name: evaluation(pair[1], loss=pair[0]) for name, pair in (("received", received), ("local", local))}
    report = train_report(0.5, **scores).model_dump(mode="python")
    update = DXO(DataKind.WEIGHT_DIFF, data={"w": torch.ones(2)}, meta={META_REPORT: report, **(meta or {})})
    shareable = update.to_shareable()
    shareable.set_peer_props({ReservedKey.IDENTITY_NAME: "photo"})
    shareable.set_header(AppConstants.CURRENT_ROUND, next(ROUNDS) if round_number is None else round_number)
    return shareable


def meta_of(shareable: Shareable) -> dict[str, Any]:
    return from_shareable(shareable).meta


@pytest.mark.parametrize(("allowed", "leaves"), [(["class_means"], False), (["gap"], True)])
def test_the_gap_leaves_only_if_the_site_allows_it(
    tmp_path: Path, site_context: FLContext, allowed: list[str] | None, leaves: bool
) -> None:
    (tmp_path / "fdg_site.json").write_text(json.dumps({"photo": {"allowed_reports": allowed}}))
    if leaves:
        for losses in ((2.0, 0.1), (1.0, 0.3)):
            sent = GapReportFilter().process(result(losses, (0.5, 0.8)), site_context)
        assert META_GAP in meta_of(sent)
    else:
        refused = GapReportFilter().process(result((2.0, 0.1), (0.5, 0.8)), site_context)
        assert reason(refused) == "site photo: the site forbids the report 'gap' (allowed_reports)."


def test_the_gap_is_the_loss_now_received_less_the_sites_own_loss_of_last_time(site_context: FLContext) -> None:
    first = GapReportFilter().process(result((2.0, 0.1), (0.5, 0.8)), site_context)
    assert META_GAP not in meta_of(first), "in the first round there is no model of the site's own to compare with"
    # A new object: the process of the last round is gone.
    second = GapReportFilter().process(result((0.75, 0.7), (0.25, 0.9)), site_context)
    assert meta_of(second)[META_GAP] == pytest.approx(0.75 - 0.5)
    third = GapReportFilter().process(result((0.125, 0.7), (0.1, 0.9)), site_context)
    assert meta_of(third)[META_GAP] == pytest.approx(0.125 - 0.25)


def test_a_loss_that_is_not_finite_gives_no_gap_and_none_in_the_next_round(site_context: FLContext) -> None:
    GapReportFilter().process(result((2.0, 0.1), (0.5, 0.8)), site_context)
    broken = GapReportFilter().process(result((math.nan, 0.1), (math.inf, 0.1)), site_context)
    assert META_GAP not in meta_of(broken)
    assert META_GAP not in meta_of(GapReportFilter().process(result((1.0, 0.1), (0.5, 0.1)), site_context))
    assert META_GAP in meta_of(GapReportFilter().process(result((1.0, 0.1), (0.5, 0.1)), site_context))


def test_a_server_that_goes_back_beyond_what_is_kept_is_told_so_without_the_folder(
    site_context: FLContext, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1000, 1001, 1002):
        GapReportFilter().process(result((2.0, 0.1), (0.5, 0.8), number), site_context)
    told = reason(GapReportFilter().process(result((1.0, 0.1), (0.5, 0.8), 1001), site_context))
    assert told.startswith("what it knew before round 1002, to which the server has gone back, is gone (")
    assert "fdg_state/job holds nothing from before round 1002" in caplog.text
    again = GapReportFilter().process(result((1.0, 0.1), (0.5, 0.8), 1003), site_context)
    assert META_GAP in meta_of(again), "what is kept is as it was"


def test_what_is_withheld_or_no_update_of_ours_has_no_gap(site_context: FLContext) -> None:
    sent = result((2.0, 0.1), (0.5, 0.8))
    from_shareable(sent).meta[META_REPORT].update(received=None, local=None, epoch_losses=None)
    assert META_GAP not in meta_of(GapReportFilter().process(sent, site_context))
    error = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    assert GapReportFilter().process(error, site_context) is GapCheckFilter().process(error, site_context) is error
    bare = DXO(DataKind.WEIGHT_DIFF, data={"w": torch.ones(2)}).to_shareable()
    assert "LocalRound.answer" in reason(GapReportFilter().process(bare, site_context))


def test_a_round_that_is_repeated_finds_what_it_found_the_first_time(site_context: FLContext) -> None:
    gaps = []
    for number, losses in ((1000, (2.0, 0.5)), (1001, (1.0, 0.3)), (1001, (1.0, 0.3)), (1002, (0.9, 0.2))):
        sent = GapReportFilter().process(result((losses[0], 0.1), (losses[1], 0.8), number), site_context)
        gaps.append(meta_of(sent).get(META_GAP))
    assert gaps == [None, pytest.approx(0.5), pytest.approx(0.5), pytest.approx(0.6)]


def test_the_memory_of_the_site_belongs_to_the_run_and_outlives_its_job(site_context: FLContext) -> None:
    first = result((2.0, 0.1), (0.5, 0.8))
    first.set_header(HEADER_RUN, "run-1")
    GapReportFilter().process(first, site_context)
    for run, gap in (("run-2", None), ("run-1", pytest.approx(0.25))):
        later = result((0.75, 0.1), (0.5, 0.8))
        later.set_header(HEADER_RUN, run)
        site_context.set_prop(FLContextKey.CURRENT_RUN, "another-job", private=True, sticky=False)
        assert meta_of(GapReportFilter().process(later, site_context)).get(META_GAP) == gap


@pytest.mark.parametrize(
    "gap", [None, math.nan, math.inf, 2.5, -1e300, 10**400, "0.5", True, [0.5], torch.tensor(0.5)], ids=repr
)
def test_a_gap_that_is_no_finite_number_or_is_forged_is_refused(
    gap: Any, site_context: FLContext, caplog: pytest.LogCaptureFixture
) -> None:
    meta = {META_CHECKED_REPORTS: {"gap": 1e9}} if gap is None else {META_GAP: gap}
    checked = GapCheckFilter().process(result((2.0, 0.1), (0.5, 0.8), meta=meta), site_context)
    assert meta_of(checked)[META_CHECKED_REPORTS] == {}
    assert ("site photo: gap is" in caplog.text) is (gap is not None)


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_the_sign_of_a_gap_of_a_plug_ins_score_is_as_its_record_says(
    higher_is_better: bool, site_context: FLContext
) -> None:
    filters = gap_filters("psnr", ScoreKind("psnr", "PSNR", highest=50.0, higher_is_better=higher_is_better))

    def sent(value: float) -> Shareable:
        answer = result((2.0, 0.1), (0.5, 0.8))
        for part in ("received", "local"):
            score = {"sum": 10 * (value if part == "received" else 30.0), "count": 10}
            one = {"split": "validation", "loss": 1.0, "count": 10, "sums": {"psnr": score}}
            from_shareable(answer).meta[META_REPORT][part] = one
        return filters.report.process(answer, site_context)

    sent(25.0)
    later = sent(20.0)
    assert meta_of(later)[META_REPORT]["keeps_state"] is True
    assert meta_of(later)[META_GAP] == pytest.approx(10.0 if higher_is_better else -10.0)
    checked = filters.check.process(later, site_context)
    assert meta_of(checked)[META_CHECKED_REPORTS] == {"gap": pytest.approx(10.0 if higher_is_better else -10.0)}
    too_large = {META_GAP: 50.5}
    refused = filters.check.process(result((2.0, 0.1), (0.5, 0.8), meta=too_large), site_context)
    assert meta_of(refused)[META_CHECKED_REPORTS] == {}


def test_only_the_loss_and_the_tasks_own_score_have_a_gap() -> None:
    score = ScoreKind("psnr", "PSNR", highest=50.0)
    assert gap_filters("loss", score).report.metric == "loss"
    for metric in ("accuracy", ["loss"]):
        with pytest.raises(SettingsError):
            gap_filters(metric, score)
    for make in (lambda: GapReportFilter("f1"), lambda: GapCheckFilter(math.nan)):
        with pytest.raises(SettingsError):
            make()


def test_a_gap_of_scores_may_be_one_however_small_the_loss_is_and_no_gap_is_above_a_larger_loss(
    site_context: FLContext,
) -> None:
    for loss, gap, taken in ((0.5, 0.75, True), (0.5, 1.25, False), (2.0, 1.25, True), (2.0, 2.25, False)):
        checked = GapCheckFilter().process(result((loss, 0.1), (0.5, 0.8), meta={META_GAP: gap}), site_context)
        assert meta_of(checked)[META_CHECKED_REPORTS] == ({"gap": gap} if taken else {})
