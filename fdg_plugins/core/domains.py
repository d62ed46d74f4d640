# SPDX-License-Identifier: Apache-2.0
r"""Splitting domains over sites: how many sites each domain gets, and which of its samples each site holds.

Reference: Guo, Guo, Cao, Wu, Chang, "Out-of-Distribution Generalization of Federated Learning via Implicit
Invariant Relationships" (FedIIR), ICML 2023, whose protocol FedDIM (IJCAI 2025) follows.

Equations: Algorithm 2. Every domain gets one site; each further site goes to the domain with the most samples per site
-> :func:`allot_sites`. Each domain is then split at random among its sites -> :func:`split_indices`.

Shapes: sizes and numbers of sites as mappings by domain; the indices of a site as an int64 vector. Sizes count the
samples to be split, after validation samples have been removed.

Degenerate cases: with as many sites as domains, every domain has one; with as many sites as samples, every site has one
sample. Fewer sites than domains, more sites than samples, and a domain without samples are refused.

Differences: the authors' code breaks ties by the order of the domains and rounds the samples per site down, so that the
remainder is not used. Here ties are broken by name and every sample belongs to a site.
"""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np


def allot_sites(domain_sizes: Mapping[str, int], num_sites: int) -> dict[str, int]:
    """Return the number of sites of each domain, by name; no domain gets more sites than it has samples.

    Raises ``ValueError`` for an empty domain, or if ``num_sites`` is below the number of domains or above that of
    samples.

    >>> allot_sites({"art": 100, "photo": 300}, 4)
    {'art': 1, 'photo': 3}
    """
    _refuse_empty(domain_sizes)
    if not 1 <= len(domain_sizes) <= num_sites <= sum(domain_sizes.values()):
        raise ValueError(
            f"Expected at least one site for each of {len(domain_sizes)} domains and at most one for each of "
            f"{sum(domain_sizes.values())} samples, got {num_sites} sites."
        )
    allotted = dict.fromkeys(sorted(domain_sizes), 1)
    for _ in range(num_sites - len(allotted)):
        # max returns the first of equals, which is the first by name
        largest = max(allotted, key=lambda domain: Fraction(domain_sizes[domain], allotted[domain]))
        allotted[largest] += 1
    return allotted


def _refuse_empty(domain_sizes: Mapping[str, int]) -> None:
    empty = sorted(domain for domain, size in domain_sizes.items() if size < 1)
    if empty:
        raise ValueError(f"domain {empty[0]}: has {domain_sizes[empty[0]]} samples, expected at least one.")


def split_indices(count: int, parts: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Return a random partition of ``range(count)`` into ``parts`` vectors of indices, each sorted.

    Sizes differ by at most one, the larger parts first. The partition follows from the state of ``generator``.

    >>> [len(part) for part in split_indices(7, 3, np.random.default_rng(0))]
    [3, 2, 2]
    """
    if not 1 <= parts <= count:
        raise ValueError(f"Expected between 1 and {count} parts of {count} samples, got {parts}.")
    return [np.sort(part) for part in np.array_split(generator.permutation(count), parts)]
