# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.settings.defaults`."""

from fdg_plugins.settings.defaults import MethodDefaults as MethodDefaults
from fdg_plugins.settings.defaults import method_defaults as method_defaults
