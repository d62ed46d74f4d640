# SPDX-License-Identifier: Apache-2.0
"""The values of a sweep's settings chosen on source validation, for every method and held-out domain.

For each value, a run's score is that of its model selected on source validation, on the same validation images of the
source domains; it is averaged over the seeds that all values have. The best value is chosen, of equal ones the first in
ascending order. The held-out domain takes no part, and neither do runs that hold out another domain: in these, its
images are sources.
"""

import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis.comparable import Group, value_of
from fdg_plugins.lab.analysis.runs import Run, grouped
from fdg_plugins.lab.analysis.selection import source_score
from fdg_plugins.tasks import ScoreKind

EQUAL_DIGITS = 12  # to which means agree that are equal but for rounding

Values = tuple[Hashable, ...]  # one of each setting that is chosen


@dataclass(frozen=True)
class Chosen:
    """The value of ``settings`` chosen for a held-out domain; ``scores``: on source validation, by their values."""

    target: str
    settings: tuple[str, ...]
    value: Values
    scores: Mapping[Values, float]
    seeds: tuple[int, ...]

    def named(self, value: Values) -> str:
        """Return the settings with values: ``kappa=0.5``, ``kappa=0.5,server_lr=1``."""
        return ",".join(f"{setting}={each}" for setting, each in zip(self.settings, value, strict=True))


def choose(group: Group) -> tuple[Group, list[Chosen]]:
    """Return a method's runs with the best values of the settings that vary in it, and what was chosen.

    Raises ``DataError`` if no seed has a run of every value.
    """
    if not group.chosen:
        return group, []
    values = {_values(run, group.chosen) for run in group.runs}
    kept: list[Run] = []
    found: list[Chosen] = []
    for target, members in grouped(group.runs, lambda run: run.target).items():
        by_value = {
            value: {
                run.seed: score
                for run in members
                if _values(run, group.chosen) == value and (score := source_score(run.record)) is not None
            }
            for value in sorted(values, key=_order)
        }
        if not (seeds := sorted(set.intersection(*map(set, by_value.values())))):
            raise DataError(
                f"{group.title} with {target} held out has no seed with a score on source validation for every value "
                f"of {', '.join(group.chosen)}: {', '.join(map(_text, by_value))}."
            )
        scores = {value: statistics.fmean(own[seed] for seed in seeds) for value, own in by_value.items()}
        kind = members[0].record.selecting
        # Of equal means the first, also where the sums that they came from were rounded otherwise.
        best = max(scores, key=lambda value: round(kind.goodness(scores[value]), EQUAL_DIGITS))
        kept += [run for run in members if _values(run, group.chosen) == best]
        found.append(Chosen(target, group.chosen, best, scores, tuple(seeds)))
    return replace(group, runs=tuple(kept)), found


def note_on(group: Group, found: Sequence[Chosen], score: ScoreKind) -> str:
    """Return what was chosen for a method: the value per held-out domain, its seeds, and the scores of all values."""
    parts = []
    for one in found:
        scores = ", ".join(f"{_text(value)}: {score.text(mean)}" for value, mean in one.scores.items())
        parts.append(f"{one.target} {_text(one.value)} ({scores}; seeds {', '.join(map(str, one.seeds))})")
    return (
        f"{group.title}: {', '.join(group.chosen)} chosen for each held-out domain by {score.name} on source "
        f"validation, never by the held-out domain: {'; '.join(parts)}."
    )


def _values(run: Run, settings: Sequence[str]) -> Values:
    return tuple(value_of(run, setting) for setting in settings)


def _order(value: Values) -> tuple[tuple[bool, float, str], ...]:
    """Return a key that sorts numbers by size, and before everything else, which is sorted by its text."""
    return tuple((False, float(one), "") if isinstance(one, int | float) else (True, 0.0, str(one)) for one in value)


def _text(value: Values) -> str:
    return " and ".join(map(str, value))
