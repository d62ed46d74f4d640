# SPDX-License-Identifier: Apache-2.0
"""The path by which operators name :class:`ReturningSites` in ``local/resources.json``; the code is in ``flare``."""

from fdg_plugins.flare.rejoin import ReturningSites

__all__ = ["ReturningSites"]
