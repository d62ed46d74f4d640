# SPDX-License-Identifier: Apache-2.0
"""Which lengths stand out from those of the other sites, and from those of earlier rounds.

For a server that must not let one site's message ruin a model: whatever is far longer than the round's median, and
than what was usual before, is refused. It is a rule against ruin and no robust aggregation: what lies below the ratio
counts like anything else.

- With three lengths or more, more than half of them honest, no liar moves the median beyond an honest length. Of an
  even number the lower of the two in the middle counts.
- With two nobody can tell who lies. Then earlier rounds say what is usual, and without these the smaller one.
- Lengths below a floor never stand out, however short the others are: a site that has learned its images sends next to
  nothing.

Lengths are L2 norms, float64, in any unit; ``inf`` stands out from everything.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

MAJORITY = 3  # lengths of which one that lies is outvoted


def reference_length(lengths: Sequence[float], earlier: Sequence[float] = (), floor: float = 0.0) -> float:
    """Return the length against which each of ``lengths`` is held.

    ``earlier``: what was usual in earlier rounds, a number for each. ``floor`` >= 0: the reference is never below it.
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
    """Return what a round's lengths, one or more, say is usual: their median, of two the longer one."""
    return statistics.median_low(lengths) if len(lengths) >= MAJORITY else max(lengths)


def length_ratios(lengths: Mapping[str, float], earlier: Sequence[float] = (), floor: float = 0.0) -> dict[str, float]:
    """Return each site's length over the reference; 0 where both are zero, infinity where only the reference is.

    >>> length_ratios({"art": 1.0, "cartoon": 1.5, "photo": 300.0})
    {'art': 0.6666666666666666, 'cartoon': 1.0, 'photo': 200.0}
    """
    reference = reference_length([value for value in lengths.values() if math.isfinite(value)], earlier, floor)
    return {site: _ratio(length, reference) for site, length in sorted(lengths.items())}


def _ratio(length: float, reference: float) -> float:
    if length == 0:
        return 0.0
    return length / reference if reference > 0 and math.isfinite(length) else math.inf


def clip_factors(lengths: Sequence[float], medians: float) -> list[float]:
    """Return the factors that shorten updates to ``medians`` > 0 times the median length, one for those below it.

    Of an even number the lower of the two in the middle counts, so that half of the sites, lying, cannot raise it.

    >>> clip_factors([1.0, 2.0, 8.0], medians=2.0)
    [1.0, 1.0, 0.5]
    """
    limit = medians * statistics.median_low(lengths)
    return [1.0 if length <= limit else limit / length for length in lengths]
