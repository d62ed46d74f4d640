# SPDX-License-Identifier: Apache-2.0
"""Moved to :mod:`fdg_plugins.settings.defaults`."""

from fdg_plugins.settings.defaults import drawn_sites as drawn_sites
from fdg_plugins.settings.defaults import source_sites as source_sites
from fdg_plugins.settings.protocol import Protocol


def draw_sites(protocol: Protocol, sources: tuple[str, ...], number: int) -> tuple[str, ...]:
    """Return the sources that train in a round."""
    return protocol.draw_sites(sources, number)
