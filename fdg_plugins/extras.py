# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.errors`."""

from fdg_plugins.errors import check_extra as check_extra
from fdg_plugins.errors import load_extra as load_extra
