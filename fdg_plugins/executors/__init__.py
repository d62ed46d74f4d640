# SPDX-License-Identifier: Apache-2.0
"""The site side: FLARE's Executor for the tasks census, statistics, probe, train and evaluate."""

from fdg_plugins.executors.site import SiteExecutor
from fdg_plugins.settings.site_config import SiteConfig, read_site_config

__all__ = ["SiteConfig", "SiteExecutor", "read_site_config"]
