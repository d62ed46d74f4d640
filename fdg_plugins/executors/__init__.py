# SPDX-License-Identifier: Apache-2.0
"""The site side: FLARE's Executor for the tasks census, statistics, probe, train and evaluate."""

from fdg_plugins.executors.site import SiteExecutor

__all__ = ["SiteExecutor"]
