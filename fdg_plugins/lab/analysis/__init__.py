# SPDX-License-Identifier: Apache-2.0
"""The analysis of finished runs: which runs are comparable, and the table of their results beside the papers' numbers.

:func:`find_runs` reads records; :func:`method_name` names methods; :func:`check_comparable` rejects runs that are not
comparable; :func:`target_score` applies a selection rule; :func:`build_table` builds the table of ``fdg report``, and
:func:`build_sites_table` that of label-skewed sites. Needs the extra ``lab``.
"""

from fdg_plugins.lab.analysis.comparable import check_comparable, group_runs, without_repeats
from fdg_plugins.lab.analysis.domains import build_table
from fdg_plugins.lab.analysis.names import method_name, method_order, method_title
from fdg_plugins.lab.analysis.runs import FoundRuns, Run, find_runs
from fdg_plugins.lab.analysis.selection import RULES, target_score
from fdg_plugins.lab.analysis.sites import build_sites_table, is_of_sites
from fdg_plugins.lab.analysis.table import Table
from fdg_plugins.record.method_settings import method_settings

__all__ = [
    "RULES",
    "FoundRuns",
    "Run",
    "Table",
    "build_sites_table",
    "build_table",
    "check_comparable",
    "find_runs",
    "group_runs",
    "is_of_sites",
    "method_name",
    "method_order",
    "method_settings",
    "method_title",
    "target_score",
    "without_repeats",
]
