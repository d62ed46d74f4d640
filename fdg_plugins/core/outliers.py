# SPDX-License-Identifier: Apache-2.0
"""Outliers among the lengths of a round's updates, relative to the other sites and to earlier rounds.

The server uses it to keep one site's message from ruining the model: an update that is much longer than the median of
the round, and than those of earlier rounds, is refused. This is not robust aggregation, because an update below the
threshold counts fully.

- With three or more lengths, of which more than half are honest, no dishonest site can move the median beyond an
  honest length. Of an even number, the lower of the two middle values counts.
- With two lengths nobody can tell which one is wrong. The reference then comes from earlier rounds, or, without these,
  it is the shorter length.
- Lengths below a floor are never outliers, however short the others are: a site that fits its images well sends an
  update of almost zero.

Shapes: lengths ``[U]`` are L2 norms, float64, in any unit; an infinite length is always an outlier.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

MAJORITY = 3  # the fewest lengths among which one dishonest site is outvoted
MOST_TIMES = 10.0  # how many times the usual influence a site may have by what it reports


def check_ratio(ratio: float) -> float:
    """Return how many times the usual length is an outlier's; raise ``ValueError`` for one that the usual ones exceed.

    0 stands for no limit.
    """
    if 0 < ratio < 1:
        raise ValueError("expected 0, or at least 1: updates of the usual length would be outliers")
    return ratio


def reference_length(lengths: Sequence[float], earlier: Sequence[float] = (), floor: float = 0.0) -> float:
    """Return the reference with which each of ``lengths`` is compared.

    ``earlier``: the :func:`usual_length` of each earlier round. ``floor`` >= 0: the reference is never below it.

    >>> lengths = [1.0, 2.0, 9.0]
    >>> reference_length(lengths), reference_length(lengths, earlier=[4.0]), reference_length(lengths, floor=5.0)
    (2.0, 4.0, 5.0)
    """
    usual = [floor]
    if len(lengths) >= MAJORITY:
        usual.append(statistics.median_low(lengths))
    elif not earlier and lengths:
        usual.append(min(lengths))
    if earlier:
        usual.append(statistics.median_low(earlier))
    return max(usual)


def usual_length(lengths: Sequence[float]) -> float:
    """Return the usual length of a round with at least one update: the median, or the longer of two.

    >>> usual_length([1.0, 1.5, 300.0])
    1.5
    """
    return statistics.median_low(lengths) if len(lengths) >= MAJORITY else max(lengths)


def length_ratios(lengths: Mapping[str, float], earlier: Sequence[float] = (), floor: float = 0.0) -> dict[str, float]:
    """Return each site's length divided by the reference; 0 if both are zero, infinity if only the reference is.

    >>> length_ratios({"art": 1.0, "cartoon": 1.5, "photo": 300.0})
    {'art': 0.6666666666666666, 'cartoon': 1.0, 'photo': 200.0}
    """
    reference = reference_length([value for value in lengths.values() if math.isfinite(value)], earlier, floor)
    return {site: _ratio(length, reference) for site, length in sorted(lengths.items())}


def far_above_median(sizes: Mapping[str, Mapping[str, float]], ratio: float) -> dict[str, str]:
    """Return the sites of which one of the ``sizes`` is more than ``ratio`` times the sites' median, with the reason.

    ``sizes``: by site and quantity. Of fewer than three sites, none can outvote a lie: nothing is compared. A ratio of
    zero compares nothing either.
    """
    found: dict[str, str] = {}
    for quantity in next(iter(sizes.values())) if ratio and len(sizes) >= MAJORITY else ():
        for site, times in length_ratios({site: of_site[quantity] for site, of_site in sizes.items()}).items():
            if times > ratio:
                reason = f"{quantity!r} is {times:.3g} times as large as is usual in this round, expected at most"
                found.setdefault(site, f"{reason} {ratio:g} times (outlier_ratio).")
    return found


def _ratio(length: float, reference: float) -> float:
    if length == 0:
        return 0.0
    return length / reference if reference > 0 and math.isfinite(length) else math.inf


def clip_factors(lengths: Sequence[float], medians: float) -> list[float]:
    """Return the factors ``[U]`` that shorten updates to ``medians`` > 0 times the median length; one for shorter ones.

    Of an even number, the lower of the two middle values counts, so that half of the sites cannot raise the median.

    >>> clip_factors([1.0, 2.0, 8.0], medians=2.0)
    [1.0, 1.0, 0.5]
    """
    limit = medians * statistics.median_low(lengths)
    return [1.0 if length <= limit else limit / length for length in lengths]
