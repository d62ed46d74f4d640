# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.errors`."""

from fdg_plugins.errors import calling as calling
