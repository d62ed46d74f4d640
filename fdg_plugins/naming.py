# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.errors`."""

from fdg_plugins.errors import did_you_mean as did_you_mean
from fdg_plugins.errors import did_you_mean as expected_one_of
from fdg_plugins.errors import nearest as nearest

__all__ = ["expected_one_of"]


def perhaps(name: object, known: object) -> str:
    """Return a full stop."""
    return "."
