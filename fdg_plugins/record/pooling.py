# SPDX-License-Identifier: Apache-2.0
"""Scores pooled over the samples of several sites, and means of scores."""

from collections.abc import Mapping, Sequence

from fdg_plugins.messages import Evaluation
from fdg_plugins.tasks import SumAndCount


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one number."""
    return sum(values) / len(values)


def domain_sums(scores: Mapping[str, Evaluation], domains: Mapping[str, str]) -> dict[str, dict[str, SumAndCount]]:
    """Return each score of each domain, pooled over the samples of its sites, as a sum and a count."""
    found: dict[str, dict[str, SumAndCount]] = {domain: {} for domain in sorted({domains[site] for site in scores})}
    for site, score in sorted(scores.items()):
        of_domain = found[domains[site]]
        for name, one in score.sums.items():
            total, count = of_domain.get(name, (0.0, 0))
            of_domain[name] = (total + one.sum, count + one.count)
    return found


def quotient(one: SumAndCount) -> float:
    """Return the score of a sum over a count of samples."""
    total, count = one
    return total / count
