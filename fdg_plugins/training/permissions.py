# SPDX-License-Identifier: Apache-2.0
"""What a site refuses to compute: anything on a held-out domain's images, and reports that its operator forbids."""

from collections.abc import Collection
from typing import NoReturn

from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import REPORT_GAP, REPORT_TRAINING_LOSS
from fdg_plugins.objectives import Objective
from fdg_plugins.plugins.reports import REPORT_LOCAL_MODEL, REPORT_STATISTICS
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import TASKS


def refuse_held_out(domain: str, protocol: Protocol) -> None:
    """Raise ``SettingsError`` if ``domain`` is held out in this run."""
    if domain == protocol.target:
        raise SettingsError(f"domain {domain!r} is held out in this run and never trains.", public=True)


def check_reports_allowed(allowed: Collection[str] | None, protocol: Protocol, objective: Objective) -> None:
    """Raise ``SettingsError`` if the protocol needs a report that is not ``allowed``; None allows all."""
    if allowed is None:
        return
    for report, whose in _needed_reports(allowed, protocol, objective).items():
        if report not in allowed:
            _forbid(report, whose)


def check_statistics_allowed(allowed: Collection[str] | None) -> None:
    """Raise ``SettingsError`` if the normalization statistics are not ``allowed``; None allows all reports."""
    if allowed is not None and REPORT_STATISTICS not in allowed:
        _forbid(REPORT_STATISTICS, "batch_norm 'reestimate'")


def _needed_reports(allowed: Collection[str], protocol: Protocol, objective: Objective) -> dict[str | None, str]:
    """Return the reports that the protocol asks for, and what needs each; an allowed gap includes its losses."""
    needed = {objective.report: f"objective {objective.name!r}"}
    if protocol.gap_split == "train" and REPORT_GAP not in allowed:
        needed[REPORT_TRAINING_LOSS] = "gap_split 'train'"
    needed[TASKS.get(protocol.task).report] = f"task {protocol.task!r}"
    if protocol.keep_local_models:
        needed[REPORT_LOCAL_MODEL] = "keep_local_models"
    needed.pop(None, None)  # of an objective or a task without a report
    return needed


def _forbid(report: str | None, whose: str) -> NoReturn:
    raise SettingsError(f"the site forbids the report {report!r} (allowed_reports), which {whose} needs.", public=True)
