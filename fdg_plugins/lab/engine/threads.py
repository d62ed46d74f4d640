# SPDX-License-Identifier: Apache-2.0
"""How many sites of a run compute at the same time."""

SITES_PER_CORE = 2


def sites_at_once(sites: int, cores: int, fitting: int) -> int:
    """Return how many of ``sites`` sites should have a process at the same time.

    All of them, while there are at most two per core and the memory holds them (``fitting``): with fewer, FLARE starts
    a process for every task. Otherwise as many as there are cores, and memory for.
    """
    return sites if sites <= min(SITES_PER_CORE * cores, fitting) else min(cores, sites, fitting)
