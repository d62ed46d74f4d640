# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.settings.protocols`."""

from fdg_plugins.settings.protocols import PAPER_PROTOCOLS as PAPER_PROTOCOLS
from fdg_plugins.settings.protocols import PLAIN_WEIGHTINGS as PLAIN_WEIGHTINGS
