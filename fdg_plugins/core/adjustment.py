# SPDX-License-Identifier: Apache-2.0
r"""FedDG-GA's weights: a site whose loss rises most under the averaged model gains weight.

Reference: Zhang, Xu, Yao, Zhang, Tian, Wang, "Federated Domain Generalization with Generalization
Adjustment" (FedDG-GA), CVPR 2023.

Equations. A site's gap is what averaging costs it, positive if the global model is worse than the site's own:
``loss(global, round r) - loss(local, round r - 1)``, with the opposite sign for scores. With ``a`` the weights before
the round, Eq. 3 is ``a'_u = a_u + d_r (gap_u - mean) / max_v (gap_v - mean)``, clipped at 0, ``a = a' / sum a'``
-> :func:`adjust_weights`.

Shapes: mappings from site to value. The weights cover all N sites known to the server and lie on the simplex;
:func:`weights_of_round` extracts those of a round. The result does not depend on the order of the sites.

Participation: only sites that report a finite gap are adjusted. They redistribute the weight that they held together,
which may be zero; every other site keeps its weight to the bit.

Degenerate cases: the weights do not change if all gaps are equal, if there is at most one gap, or if the step would
clip every reporting site to zero.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from fdg_plugins.core.weighting import check_weights

# A loss is non-negative, hence at least as large as the gap computed from it, and has the precision of float32.
# Gaps that differ by less than the rounding of the largest one count as equal.
EQUAL_GAPS = 2.0**-23


def gap_variance(gaps: Iterable[float | None]) -> float | None:
    """Return the variance of the gaps that sites reported (Eq. 2's second term); None for fewer than two.

    >>> gap_variance([0.5, None, 1.5])
    0.25
    """
    known = [gap for gap in gaps if gap is not None and math.isfinite(gap)]
    return statistics.pvariance(known) if len(known) > 1 else None


def adjust_weights(
    weights: Mapping[str, float], gaps: Mapping[str, float | None], step_size: float, normalizer: str = "max"
) -> dict[str, float]:
    """Return the weights of all known sites after Eq. 3.

    ``weights``: of every known site, on the simplex. ``gaps``: of the sites that report one; a site without a gap has
    None, a non-finite number, or no entry. ``step_size``: d_r >= 0, the most that a site gains before renormalisation;
    zero changes nothing. ``normalizer``: ``"max"`` (paper) or ``"max_abs"`` (authors' code).

    >>> adjust_weights({"art": 0.5, "photo": 0.5}, {"art": 3.0, "photo": 1.0}, 0.25)
    {'art': 0.75, 'photo': 0.25}
    """
    check_weights(list(weights.values()), len(weights))
    values = {site: weights[site] for site in sorted(weights)}
    gap_of = {site: float(gap) for site in values if (gap := gaps.get(site)) is not None and math.isfinite(gap)}
    normalise, ceiling = NORMALIZERS[normalizer]
    moves = {site: step_size * move for site, move in zip(gap_of, normalise(list(gap_of.values())), strict=True)}
    moved = {site: min(max(values[site] + move, 0.0), ceiling) for site, move in moves.items()}
    total = math.fsum(moved.values())
    if not any(moves.values()) or total == 0:
        return values
    # If every site reports, renormalising to one also removes the rounding of earlier rounds.
    share = 1.0 if len(moved) == len(values) else math.fsum(values[site] for site in moved)
    return {site: share * (moved[site] / total) if site in moved else value for site, value in values.items()}


def with_new_sites(weights: Mapping[str, float], sites: Iterable[str]) -> dict[str, float]:
    """Return the weights of all known sites and ``sites``: a new site starts at the mean, then all are rescaled to 1.

    The ratios of known sites are kept; without new sites, so are the bits of their weights. If no site is known yet,
    all start with equal weights.

    >>> with_new_sites({"art": 0.75, "photo": 0.25}, ["sketch"])
    {'art': 0.5, 'photo': 0.16666666666666666, 'sketch': 0.3333333333333333}
    """
    new = sorted(set(sites) - set(weights))
    if not new:
        return {site: weights[site] for site in sorted(weights)}
    mean = math.fsum(weights.values()) / len(weights) if weights else 1.0
    return _normalised({**weights, **dict.fromkeys(new, mean)})


def weights_of_round(weights: Mapping[str, float], sites: Iterable[str]) -> dict[str, float]:
    """Return the weights of the round's ``sites``, rescaled to sum to one; equal weights if all are zero.

    >>> weights_of_round({"photo": 0.5, "sketch": 0.25, "cartoon": 0.25}, ["sketch", "cartoon"])
    {'cartoon': 0.5, 'sketch': 0.5}
    """
    return _normalised({site: weights[site] for site in sorted(set(sites))})


def _relative_to_largest(gaps: Sequence[float]) -> list[float]:
    """Return ``gap_u / max_v |gap_v|``; zeros if all gaps are zero."""
    largest = max((abs(gap) for gap in gaps), default=0.0)
    return [gap / largest if largest else 0.0 for gap in gaps]


def _relative_to_largest_deviation(gaps: Sequence[float]) -> list[float]:
    """Return ``(gap_u - mean) / max_v (gap_v - mean)``; zeros if all gaps are equal."""
    scaled = _relative_to_largest(gaps)  # prevents overflow; the result does not depend on the scale
    if not scaled or max(scaled) - min(scaled) <= EQUAL_GAPS:
        return [0.0] * len(scaled)
    mean = math.fsum(scaled) / len(scaled)
    largest = max(scaled) - mean
    return [(gap - mean) / largest for gap in scaled]


# Name -> how gaps are normalised, and the ceiling to which weights are clipped before they are rescaled.
NORMALIZERS: dict[str, tuple[Callable[[Sequence[float]], list[float]], float]] = {
    "max": (_relative_to_largest_deviation, math.inf),
    "max_abs": (_relative_to_largest, 1.0),
}


def _normalised(weights: Mapping[str, float]) -> dict[str, float]:
    total = math.fsum(weights.values())
    return {site: weights[site] / total if total > 0 else 1 / len(weights) for site in sorted(weights)}
