# SPDX-License-Identifier: Apache-2.0
"""Tables and figures of finished runs, as ``fdg report`` and ``fdg plot`` make them. Needs the extra ``lab``.

:func:`find_runs` reads records; :func:`build_table` builds the table of ``fdg report``, and :func:`build_sites_table`
that of label-skewed sites. A :class:`Table` has numbers and texts as data frames; ``figures`` has the figures.
"""

from fdg_plugins.lab.analysis.domains import build_table
from fdg_plugins.lab.analysis.runs import FoundRuns, Run, find_runs, method_name
from fdg_plugins.lab.analysis.selection import RULES, target_score
from fdg_plugins.lab.analysis.sites import build_sites_table, is_of_sites
from fdg_plugins.lab.analysis.table import Table

__all__ = [
    "RULES",
    "FoundRuns",
    "Run",
    "Table",
    "build_sites_table",
    "build_table",
    "find_runs",
    "is_of_sites",
    "method_name",
    "target_score",
]
