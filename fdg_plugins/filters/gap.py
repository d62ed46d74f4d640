# SPDX-License-Identifier: Apache-2.0
"""The generalization gap on the wire: what averaging costs a site, as one number beside its update.

The gap of round r is the loss of the global model that the site received, minus the loss of the site's own
model after its last local training, on the same split: positive if the global model is worse. The split is the
validation split, as in the authors' code, or the training split, as in the paper's text (the protocol's ``gap_split``).
What it reveals: the difference of two losses on the site's data.
"""

import math
from pathlib import Path
from typing import Any

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fdg_plugins.aggregators.weightings import REPORT_GAP
from fdg_plugins.core.adjustment import accuracy_gap, loss_gap
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.messages import META_CHECKED_REPORTS, META_GAP, META_REPORT, TrainReport, shorten
from fdg_plugins.storage import read_json, write_json

GAP_FILE = "fdg_gap.json"
STATE_VERSION = 1
METRICS = {"loss": loss_gap, "accuracy": accuracy_gap}


class GapReportFilter(Filter):
    """At a site, on the result of ``train``: attaches the gap.

    The value of the site's own model is kept in the site's run folder: it must outlive rounds without the site
    and a process that is torn down between rounds.

    Args:
        metric: ``"loss"`` (paper) or ``"accuracy"`` (released code; the sign is turned).
    """

    def __init__(self, metric: str = "loss") -> None:
        super().__init__()
        if metric not in METRICS:
            raise SettingsError(f"metric is {metric!r}, expected one of {', '.join(sorted(METRICS))}.")
        self.metric = metric

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the result with the gap in its meta; as it came if it is no update, or there is no earlier model."""
        dxo = _update(shareable)
        if dxo is None:
            return shareable
        report = TrainReport.read(dxo.meta.get(META_REPORT), "report of the local training", DataError)
        path = Path(fl_ctx.get_engine().get_workspace().get_run_dir(fl_ctx.get_job_id())) / GAP_FILE
        previous = read_json(path)[self.metric] if path.exists() else None
        received, local = report.training_split or (report.received, report.local)
        gap = METRICS[self.metric](getattr(received, self.metric), previous) if previous is not None else None
        own = {name: getattr(local, name) for name in METRICS}
        kept = {name: value if math.isfinite(value) else None for name, value in own.items()}
        write_json(path, {"version": STATE_VERSION, **kept})
        if gap is not None and math.isfinite(gap):
            dxo.set_meta_prop(META_GAP, gap)
        return dxo.update_shareable(shareable)


class GapCheckFilter(Filter):
    """At the server, on the result of ``train``: takes the gap off, and hands a finite one on as a checked report."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return the result with the gap among its checked reports; a gap that cannot be used is named in the log."""
        dxo = _update(shareable)
        if dxo is None:
            return shareable
        gap = dxo.meta.pop(META_GAP, None)
        reports: dict[str, Any] = {}
        if isinstance(gap, int | float) and not isinstance(gap, bool) and math.isfinite(gap):
            reports[REPORT_GAP] = float(gap)
        elif gap is not None:
            site = shareable.get_peer_prop(ReservedKey.IDENTITY_NAME, "without a name")
            self.log_warning(fl_ctx, f"site {site}: gap is {shorten(gap)}, expected a finite number; its weight stays.")
        # Set in any case: a site cannot hand in reports that it calls checked.
        dxo.set_meta_prop(META_CHECKED_REPORTS, reports)
        return dxo.update_shareable(shareable)


def _update(shareable: Shareable) -> DXO | None:
    """Return the update in a result; None for an error reply or anything else, which is not a filter's to judge."""
    if shareable.get_return_code(ReturnCode.OK) != ReturnCode.OK:
        return None
    try:
        dxo = from_shareable(shareable)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return dxo if dxo.data_kind == DataKind.WEIGHT_DIFF and isinstance(dxo.meta, dict) else None
