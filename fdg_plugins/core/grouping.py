# SPDX-License-Identifier: Apache-2.0
r"""Matching of group means: sites are grouped, by domain for example, and FedOMG matches the means of the groups.

With many sites per domain, Eq. 15 of FedOMG (:mod:`fdg_plugins.core.matching`) looks for an agreement of sites, of
which a domain with more sites has more. If the means of the domains are matched instead, every domain has one vote.

Equations, with groups k of sites and reference weights p:

- ``P_k = sum_{u in k} p_u`` and ``h_k = sum_{u in k} p_u / P_k g_u``, so that ``sum_k P_k h_k = g_FL`` ->
  :func:`group_means`
- Eq. 15 over the K group means, whose Gram matrix is ``A G A'`` with ``h = A g``; the sites' gamma is ``A' gamma``, on
  the simplex of the sites -> :func:`match_groups`
- the loss, ``(F(A' gamma) - min F) / |F|``, how far this is from the optimum over all sites -> :func:`relative_loss`

Shapes: U sites, K groups; ``A [K, U]``, ``G [U, U]``, p ``[U]``; gamma of the sites ``[U]``.

Degenerate cases: with one site per group, A is the identity and everything has the bits of the matching of sites. With
equal updates in every group nothing is lost. A group of weight zero has the plain mean of its sites.
"""

from collections.abc import Hashable, Sequence

import torch

from fdg_plugins.core.matching import Matching, match, moving_sites

TINY = 1e-300  # below this, F is zero at both points that are compared


def group_means(groups: Sequence[Hashable], weights: torch.Tensor) -> torch.Tensor:
    """Return ``A``, float64 ``[K, U]``: row k takes the weighted mean of the sites of group k.

    ``groups`` has the group of each site; groups come in the order of their first sites. ``weights``: p ``[U]``, not
    negative.

    >>> group_means(["art", "photo", "photo"], torch.tensor([0.5, 0.125, 0.375], dtype=torch.float64)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.25, 0.75]]
    """
    rows = []
    for group in dict.fromkeys(groups):
        members = torch.tensor([other == group for other in groups])
        own = torch.where(members, weights.to(torch.float64), 0.0)
        rows.append(own / own.sum() if bool(own.any()) else members.double() / members.sum())
    return torch.stack(rows)


def match_groups(
    gram: torch.Tensor,
    reference: torch.Tensor,
    kappa: float,
    means: torch.Tensor,
    damping: float = 0.0,
    idle_below: float = 0.0,
) -> tuple[Matching, torch.Tensor]:
    """Solve Eq. 15 over group means; return the solution, with gamma of the sites, and a mask ``[K]`` of those matched.

    Args:
        gram: G ``[U, U]``, of the sites.
        reference: p ``[U]`` on the simplex.
        kappa: the radius.
        means: A ``[K, U]``.
        damping: delta, relative to the squared mean length of the sites' updates, as in the matching of sites.
        idle_below: group means shorter than this times the longest are not matched.
    """
    upper = (means @ gram.to(torch.float64) @ means.T).triu()
    grouped = upper + upper.triu(1).T  # A G A', exactly symmetric
    moving = moving_sites(grouped, idle_below)
    ours, theirs = (float(one.diagonal().clamp_min(0).sqrt().mean()) for one in (grouped, gram))
    scaled = damping * (theirs / ours) ** 2 if ours > 0 else damping
    group_weights = (means > 0).double() @ reference.to(torch.float64)  # P [K]
    found = match(grouped, group_weights, kappa, scaled, moving)
    return Matching(found.weights @ means, found.objective, found.gap), moving


def relative_loss(value: float, optimum: float) -> float:
    """Return how far ``value`` is above ``optimum``, relative to the larger of their magnitudes, in [0, 2].

    >>> relative_loss(4.0, 3.0), relative_loss(8.0, 6.0)
    (0.25, 0.25)
    """
    size = max(abs(value), abs(optimum))
    return max(0.0, value - optimum) / size if size > TINY else 0.0
