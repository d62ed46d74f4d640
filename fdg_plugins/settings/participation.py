# SPDX-License-Identifier: Apache-2.0
"""Participation: how many of a federation's sites are drawn for a round, and which."""

from collections.abc import Mapping
from typing import Any

from fdg_plugins.data.catalogue import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.randomness import numpy_generator
from fdg_plugins.settings.families import dataset_protocol
from fdg_plugins.settings.protocol import MOST_SITES, Protocol
from fdg_plugins.values import check_count


def drawn_sites(share: float, sources: int) -> int | None:
    """Return ``sites_per_round`` for a share of the sources in (0, 1], at least two; None, all of them, for one.

    >>> drawn_sites(0.4, 100), drawn_sites(1.0, 100)
    (40, None)
    """
    if not 0 < share <= 1:
        raise SettingsError(f"participation is {share:g}, expected a share of the sites above 0 and at most 1.")
    return None if share == 1 else max(min(2, sources), round(share * sources))


def source_sites(dataset: DatasetRef, settings: Mapping[str, Any]) -> int:
    """Return the number of source sites of a job by name: those of each domain but one, as settings or data set say.

    Raises ``SettingsError`` if ``sites_per_domain`` is not a number of sites.
    """
    per_domain: Any = {**dataset_protocol(dataset).protocol, **settings}.get("sites_per_domain", 1)
    check_count("sites_per_domain", per_domain, at_least=1, at_most=MOST_SITES)
    return per_domain * (len(dataset_spec(dataset).domains) - 1)


def draw_sites(protocol: Protocol, sources: tuple[str, ...], number: int) -> tuple[str, ...]:
    """Return the ``sources`` that train in round ``number``, counted from 1: all, or a seeded draw by the protocol."""
    count = protocol.sites_per_round
    if count is None or count >= len(sources):
        return sources
    generator = numpy_generator(protocol.seed, "sites of the round", number)
    return tuple(sorted(generator.choice(sources, size=count, replace=False).tolist()))
