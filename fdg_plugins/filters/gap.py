# SPDX-License-Identifier: Apache-2.0
"""The generalization gap on the wire: the cost of averaging for a site, as one number sent with its update.

The gap of round r is the loss of the global model that the site received, minus the loss of the site's own model after
its last local training, on the same split. It is positive if the global model is worse. The split is the validation
split, as in the authors' code, or the training split, as in the paper's text (the protocol's ``gap_split``).
It reveals the difference of two losses on the site's data.
"""

import math
from contextlib import suppress
from typing import Any

import torch
from nvflare.apis.dxo import DXO
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants

from fdg_plugins.errors import ContributionError, DataError, FDGError, SettingsError, check_choice, is_number
from fdg_plugins.filters.wire import read_update, with_main, with_meta
from fdg_plugins.flare.context import site_config_of
from fdg_plugins.flare.peers import authenticated_site
from fdg_plugins.messages import (
    HEADER_REASON,
    HEADER_RUN,
    META_CHECKED_REPORTS,
    META_GAP,
    META_REPORT,
    REPORT_GAP,
    Evaluation,
    TrainReport,
)
from fdg_plugins.plugins.reports import CheckedReports
from fdg_plugins.privacy.reasons import reason_of
from fdg_plugins.state.folders import state_folder
from fdg_plugins.state.site_memory import OWN_MODEL, read_round, write_round
from fdg_plugins.tasks import TASKS

LARGEST_GAP = 1e6  # far beyond the cross entropy of any useful model
LOSS = "loss"


class GapReportFilter(Filter):
    """At a site, on the result of ``train``: attaches the gap.

    The metrics of the site's own model are kept in the run's folder at the site. They must persist across rounds
    without the site, across processes, and across the jobs of one run, so the site's training report then says that it
    keeps a state, without which the run is not resumed.

    Args:
        metric: ``"loss"`` (paper), or the name of the task's score, such as ``"accuracy"`` (released code; its sign
            is inverted, so that a positive gap always means that the global model is worse).
    """

    def __init__(self, metric: str = LOSS) -> None:
        super().__init__()
        check_choice("metric", metric, {LOSS, *(task.score.name for task in TASKS.own().values())})
        self.metric = metric

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the result with the gap in its meta; unchanged if it is not an update; without a gap if no earlier
        model exists.

        A failure becomes an error reply with its reason, because FLARE does not tell the server about an error raised
        in a filter.
        """
        if (message := read_update(shareable)) is None:
            return shareable
        try:
            meta = self._gap(message.main, shareable, fl_ctx)
        except FDGError as error:
            reason = reason_of(error, fl_ctx)
            self.log_error(fl_ctx, f"gap not reported: {reason.logged}", fire_event=False)
            return make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: reason.told})
        return with_main(with_meta(message.main, meta), shareable)

    def _gap(self, update: DXO, shareable: Shareable, fl_ctx: FLContext) -> dict[str, Any]:
        site = fl_ctx.get_identity_name()
        allowed = site_config_of(site, fl_ctx).allowed_reports
        if allowed is not None and REPORT_GAP not in allowed:
            raise SettingsError(f"site {site}: the site forbids the report 'gap' (allowed_reports).", public=True)
        if META_REPORT not in update.meta:
            raise DataError(
                "the update came without the report that the gap is computed from; your own script sends one with "
                "LocalRound.answer (fdg_plugins.client).",
                public=True,
            )
        received, local = _compared(TrainReport.read(update.meta[META_REPORT], "report of the training", DataError))
        if received is None or local is None:
            return {}  # the evaluations are withheld, so the gap is too
        run = shareable.get_header(HEADER_RUN, fl_ctx.get_job_id())
        folder = state_folder(fl_ctx.get_engine().get_workspace(), run)
        number = int(shareable.get_header(AppConstants.CURRENT_ROUND, 0))
        now, before = _values(received), read_round(folder, OWN_MODEL, number)
        if self.metric not in now:
            expected = f"one of {', '.join(now)}, which the run's task has"
            raise SettingsError(field="metric", value=self.metric, expected=expected, public=True)
        kept = {name: torch.tensor(one, dtype=torch.float64) for name, one in _values(local).items()}
        write_round(folder, OWN_MODEL, number, kept)
        meta: dict[str, Any] = {META_REPORT: {**update.meta[META_REPORT], "keeps_state": True}}
        if self.metric in before:
            of_global, of_local = now[self.metric], float(before[self.metric])
            gap = of_global - of_local if self.metric == LOSS else of_local - of_global
            meta |= {META_GAP: gap} if math.isfinite(gap) else {}
        return meta


def _compared(report: TrainReport) -> tuple[Evaluation | None, Evaluation | None]:
    """Return the evaluations that a gap compares, of the received and of the local model; None for a withheld one."""
    return report.training_split or (report.received, report.local)


def _values(evaluation: Evaluation) -> dict[str, float]:
    return {LOSS: evaluation.loss, **evaluation.values()}


class GapCheckFilter(Filter):
    """At the server, on the result of ``train``: extracts the gap and passes a valid one on as a checked report."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the result with the gap among its checked reports; an unusable gap is refused and logged."""
        if (message := read_update(shareable)) is None:
            return shareable
        meta = message.main.meta
        # Always overwritten: a site cannot claim that its own reports were checked.
        checked = CheckedReports.of(meta.get(META_CHECKED_REPORTS))
        try:
            checked.note(REPORT_GAP, _read_gap(meta) if META_GAP in meta else None)
        except ContributionError as error:
            checked.note(REPORT_GAP, refused=str(error))
            self.log_warning(fl_ctx, f"site {authenticated_site(shareable, fl_ctx)}: {error}")
        return with_main(with_meta(message.main, {META_CHECKED_REPORTS: checked}, META_GAP), shareable)


def _read_gap(meta: dict[str, Any]) -> float:
    # No loss is negative, so a gap of losses is at most the loss of the received model; a gap of scores is at most 1.
    gap, highest = meta[META_GAP], LARGEST_GAP
    with suppress(DataError):  # the report is refused where it is read
        received, _ = _compared(TrainReport.read(meta.get(META_REPORT), "report", DataError))
        if received is not None and not math.isnan(received.loss):
            highest = min(LARGEST_GAP, max(1.0, received.loss))
    if not is_number(gap) or not -LARGEST_GAP <= gap <= highest:
        expected = f"a number from {-LARGEST_GAP:g} to {highest:g}; its weight stays"
        raise ContributionError(field="gap", value=gap, expected=expected)
    return float(gap)
