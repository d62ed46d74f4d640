# SPDX-License-Identifier: Apache-2.0
r"""Domains over sites: how many sites each domain gets, and which of its samples each of them holds.

Reference: Guo, Guo, Cao, Wu, Chang, "Out-of-Distribution Generalization of Federated Learning via Implicit
Invariant Relationships" (FedIIR), ICML 2023, whose protocol FedDIM (IJCAI 2025) follows.

Equations: Algorithm 2, every domain one site, the next to the domain with most samples per site
-> :func:`allot_sites`; each domain at random into its number of sites -> :func:`split_indices`.

Shapes: sizes and numbers of sites by domain; the indices of a domain as vectors of int64. The sizes are those
of what is split, so validation samples are taken away before.

Degenerate cases: as many sites as domains gives every domain one; as many sites as samples gives every site
one sample. Fewer sites than domains, more than samples, and a domain without samples are refused.

Differences: the authors' code breaks ties by the order of the domains and rounds the samples per site down, so
that a remainder goes to no site; here ties go by name and every sample has a site.
"""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np


def allot_sites(domain_sizes: Mapping[str, int], num_sites: int) -> dict[str, int]:
    """Return how many of ``num_sites`` each domain gets, by name; no domain gets more sites than it has samples.

    >>> allot_sites({"art": 100, "photo": 300}, 4)
    {'art': 1, 'photo': 3}
    """
    empty = sorted(domain for domain, size in domain_sizes.items() if size < 1)
    if empty:
        raise ValueError(f"domain {empty[0]}: has {domain_sizes[empty[0]]} samples, expected at least one.")
    if not domain_sizes or not len(domain_sizes) <= num_sites <= sum(domain_sizes.values()):
        raise ValueError(
            f"Expected at least one site for each of {len(domain_sizes)} domains and at most one for each of "
            f"{sum(domain_sizes.values())} samples, got {num_sites} sites."
        )
    allotted = dict.fromkeys(sorted(domain_sizes), 1)
    for _ in range(num_sites - len(allotted)):
        # max takes the first of equals, which is the first by name
        largest = max(allotted, key=lambda domain: Fraction(domain_sizes[domain], allotted[domain]))
        allotted[largest] += 1
    return allotted


def split_indices(count: int, parts: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Return ``parts`` sets of indices, drawn at random, that hold each of ``range(count)`` once; each one ascending.

    Their sizes differ by at most one, the larger first. The same state of the generator gives the same sets.
    """
    if not 1 <= parts <= count:
        raise ValueError(f"Expected between 1 and {count} parts of {count} samples, got {parts}.")
    return [np.sort(part) for part in np.array_split(generator.permutation(count), parts)]
