# SPDX-License-Identifier: Apache-2.0
r"""Dividing images over many sites: one pool alike, by a Dirichlet law of the labels, or in shards; or mixed domains.

References: Guo, Guo, Cao, Wu, Chang (FedIIR), ICML 2023, Algorithm 2, for domains; Hsu, Qi, Brown, "Measuring the
Effects of Non-Identical Data Distribution for Federated Visual Classification", 2019, for the Dirichlet law; McMahan,
Moore, Ramage, Hampson, y Arcas, "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
2017, for the shards ("pathological" in later papers); Bai, Bagchi, Inouye, "Benchmarking Algorithms for Federated
Domain Generalization", ICLR 2024, for sites that mix domains.

Equations: for each class y, ``q_y ~ Dir(alpha, ..., alpha)`` over the N sites, and the images of the class are cut at
the cumulative sums of q_y -> :func:`dirichlet_parts`. Images sorted by label are cut into 2 N shards, and each site
gets two at random -> :func:`shard_parts`. A random partition into equal parts -> :func:`equal_parts`. Every domain gets
one site, and each further site goes to the domain with the most samples per site -> :func:`allot_sites`; a domain is
then split at random among its sites -> :func:`split_indices`. Of the n images of a domain with K of N sites, each site
has ``lambda n / N``, and its own K sites ``(1 - lambda) n / K`` more -> :func:`mixed_part`.

Shapes: labels ``[M]`` of M images; a part is an int64 vector of indices in [0, M), sorted. The parts are disjoint and
have every image.

Degenerate cases: a large alpha gives every site the classes in the proportions of the pool; as alpha goes to zero every
class goes to one site. No site has fewer than ``least`` images: a site below it gets images, drawn at random, from the
sites that have most. With one site, it has everything.

Differences: Hsu et al. draw a mixture of classes for each site instead of one of sites for each class, and give all
sites equally many images. Public benchmarks that draw per class repeat the draw until every site has enough images;
this ends only if alpha and the pool are large enough, so here images move instead, as few as possible. FedIIR's code
breaks ties by the order of the domains and drops the samples that do not divide evenly; here ties are broken by name
and every sample belongs to a site.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

SHARDS_PER_SITE = 2


def dirichlet_parts(
    labels: np.ndarray, sites: int, alpha: float, least: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Return the images of each of ``sites``: each class divided in proportions drawn from Dir(alpha).

    Raises ``ValueError`` for fewer than ``least`` images per site.
    """
    _check_enough(len(labels), sites, least)
    parts: list[list[np.ndarray]] = [[] for _ in range(sites)]
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        shares = _dirichlet(alpha, sites, generator)
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for part, own in zip(parts, np.split(members, cuts), strict=True):
            part.append(own)
    return _with_least([np.concatenate(part) for part in parts], least, generator)


def _dirichlet(alpha: float, sites: int, generator: np.random.Generator) -> np.ndarray:
    """Return proportions ``[N]``; for so small an alpha that all draws vanish, all of one site at random."""
    draws = generator.standard_gamma(alpha, size=sites)
    if draws.sum() > 0:
        return np.asarray(draws / draws.sum())
    return np.eye(sites)[generator.integers(sites)]


def shard_parts(labels: np.ndarray, sites: int, least: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Return the images of each of ``sites``: two shards of the images sorted by label, whose order is random.

    Raises ``ValueError`` for fewer images than shards or than ``least`` per site.

    >>> labels = np.repeat(np.arange(4), 25)
    >>> parts = shard_parts(labels, 10, 1, np.random.default_rng(0))
    >>> max(len(set(labels[part])) for part in parts), {len(part) for part in parts}
    (2, {10})
    """
    count = SHARDS_PER_SITE * sites
    _check_enough(len(labels), sites, max(least, SHARDS_PER_SITE))
    shuffled = generator.permutation(len(labels))
    shards = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], count)
    dealt = generator.permutation(count).reshape(sites, SHARDS_PER_SITE)
    return _with_least([np.concatenate([shards[number] for number in own]) for own in dealt], least, generator)


def equal_parts(labels: np.ndarray, sites: int, least: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Return the images of each of ``sites``: a random partition whose sizes differ by at most one.

    >>> [len(part) for part in equal_parts(np.zeros(7), 3, 1, np.random.default_rng(0))]
    [3, 2, 2]
    """
    _check_enough(len(labels), sites, least)
    return split_indices(len(labels), sites, generator)


def split_indices(count: int, parts: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Return a random partition of ``range(count)`` into ``parts`` vectors of indices, each sorted.

    Sizes differ by at most one, the larger parts first. The partition follows from the state of ``generator``.

    >>> [len(part) for part in split_indices(7, 3, np.random.default_rng(0))]
    [3, 2, 2]
    """
    if not 1 <= parts <= count:
        raise ValueError(f"Expected between 1 and {count} parts of {count} samples, got {parts}.")
    return [np.sort(part) for part in np.array_split(generator.permutation(count), parts)]


def mixed_part(
    count: int, share: float, site: tuple[int, int], part: tuple[int, int] | None, generator: np.random.Generator
) -> np.ndarray:
    """Return the images, of ``count`` of a domain, that a site has if all sites divide ``share`` of them (lambda).

    Args:
        site: its number among all sites, from 1, and their number.
        part: its number among the sites of the domain, and their number; None: it is a site of another domain.

    >>> [len(mixed_part(12, 0.5, (n, 3), (n, 2) if n < 3 else None, np.random.default_rng(0))) for n in (1, 2, 3)]
    [5, 5, 2]
    """
    order = generator.permutation(count)
    spread = round(share * count)
    own = [np.array_split(order[spread:], part[1])[part[0] - 1]] if part is not None else []
    return np.sort(np.concatenate([np.array_split(order[:spread], site[1])[site[0] - 1], *own]))


def allot_sites(domain_sizes: Mapping[str, int], num_sites: int) -> dict[str, int]:
    """Return the number of sites of each domain, by name; no domain gets more sites than it has samples.

    Raises ``ValueError`` for an empty domain, or if ``num_sites`` is below the number of domains or above that of
    samples.

    >>> allot_sites({"art": 100, "photo": 300}, 4)
    {'art': 1, 'photo': 3}
    """
    if empty := sorted(domain for domain, size in domain_sizes.items() if size < 1):
        raise ValueError(f"domain {empty[0]}: has {domain_sizes[empty[0]]} samples, expected at least one.")
    if not 1 <= len(domain_sizes) <= num_sites <= sum(domain_sizes.values()):
        raise ValueError(
            f"Expected from {len(domain_sizes)} sites, one for each domain, to {sum(domain_sizes.values())}, one for "
            f"each sample, got {num_sites}."
        )
    allotted = dict.fromkeys(sorted(domain_sizes), 1)
    for _ in range(num_sites - len(allotted)):
        # max returns the first of equals, which is the first by name
        largest = max(allotted, key=lambda domain: Fraction(domain_sizes[domain], allotted[domain]))
        allotted[largest] += 1
    return allotted


def _check_enough(images: int, sites: int, least: int) -> None:
    if sites < 1 or images < sites * least:
        raise ValueError(f"{images} images are too few for {sites} sites of at least {least}.")


def _with_least(parts: Sequence[np.ndarray], least: int, generator: np.random.Generator) -> list[np.ndarray]:
    members = [generator.permutation(part).tolist() for part in parts]
    for part in members:
        while len(part) < least:
            part.append(max(members, key=len).pop())
    return [np.sort(np.array(part, dtype=np.int64)) for part in members]
