# SPDX-License-Identifier: Apache-2.0
"""FLARE Filters that put reports on a site's answer and, at the server, check them and take them off."""

from fdg_plugins.filters.gap import GapCheckFilter, GapReportFilter

__all__ = ["GapCheckFilter", "GapReportFilter"]
