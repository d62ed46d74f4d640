# SPDX-License-Identifier: Apache-2.0
"""The analysis of finished runs: which runs are comparable, and the table of their results beside the papers' numbers.

:func:`find_runs` reads records; :func:`method_name` names methods; :func:`check_comparable` rejects runs that are not
comparable; :func:`target_score` applies a selection rule; :func:`build_table` builds the table of ``fdg report``.
"""

from fdg_plugins.lab.analysis.comparable import check_comparable, without_repeats
from fdg_plugins.lab.analysis.grid import to_grid
from fdg_plugins.lab.analysis.names import method_name, method_order, method_title
from fdg_plugins.lab.analysis.render_text import render_text
from fdg_plugins.lab.analysis.runs import FoundRuns, Run, find_runs
from fdg_plugins.lab.analysis.selection import RULES, target_score
from fdg_plugins.lab.analysis.table import Table, build_table
from fdg_plugins.record.method_settings import method_settings

__all__ = [
    "RULES",
    "FoundRuns",
    "Run",
    "Table",
    "build_table",
    "check_comparable",
    "find_runs",
    "method_name",
    "method_order",
    "method_settings",
    "method_title",
    "render_text",
    "target_score",
    "to_grid",
    "without_repeats",
]
