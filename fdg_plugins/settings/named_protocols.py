# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.settings.protocols`."""

from fdg_plugins.settings.defaults import protocol_settings as protocol_settings
from fdg_plugins.settings.protocols import PAPER as PAPER
from fdg_plugins.settings.protocols import PROTOCOLS as PROTOCOLS
from fdg_plugins.settings.protocols import QUICK as QUICK
