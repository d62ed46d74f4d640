# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.plugins.versions`."""

from fdg_plugins.plugins.versions import OF_AUDIT as OF_AUDIT
from fdg_plugins.plugins.versions import OF_SERVER as OF_SERVER
from fdg_plugins.plugins.versions import OF_SITE as OF_SITE
from fdg_plugins.plugins.versions import installed_versions as installed_versions
from fdg_plugins.plugins.versions import is_plugin as is_plugin
from fdg_plugins.plugins.versions import must_be_equal as must_be_equal
