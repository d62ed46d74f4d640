# SPDX-License-Identifier: Apache-2.0
"""The values of a sweep's settings chosen on source validation, for every method and held-out domain.

For each value, a run's score is that of its model selected on source validation, on the same validation images of the
source domains; it is averaged over the seeds that all values have. The best value is chosen, of equal ones the first in
ascending order. The held-out domain takes no part, and neither do runs that hold out another domain: in these, its
images are sources.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis.comparable import check_comparable, settings_key, without_repeats
from fdg_plugins.lab.analysis.names import method_title
from fdg_plugins.lab.analysis.runs import Run, grouped
from fdg_plugins.lab.analysis.selection import source_score
from fdg_plugins.lab.analysis.varied import check_varies, hashable, value_of
from fdg_plugins.tasks import ScoreKind

OPTION = "--choose"
EQUAL_DIGITS = 12  # to which means agree that are equal but for rounding

Values = tuple[Any, ...]  # one of each setting that is chosen


@dataclass(frozen=True)
class Chosen:
    """What was chosen for a method, with its other settings, and a held-out domain.

    ``group``: identifies method and other settings (:func:`~fdg_plugins.lab.analysis.comparable.settings_key`).
    ``settings``: those that vary among the group's runs, in the order of ``value``; ``scores``: on source validation,
    by their values.
    """

    group: tuple[Any, ...]
    target: str
    settings: tuple[str, ...]
    value: Values
    scores: Mapping[Values, float]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Choices:
    """The runs that have the chosen values, and all runs of methods without a choice; and what was chosen.

    ``copies``: runs that repeat another one, each with it.
    """

    runs: tuple[Run, ...]
    chosen: tuple[Chosen, ...]
    copies: tuple[tuple[Run, Run], ...]


def choose(runs: Sequence[Run], settings: Sequence[str]) -> Choices:
    """Return the runs whose values of ``settings`` are best on source validation, for each method and held-out domain.

    Raises ``SettingsError`` for a setting that does not vary and for runs that differ in anything else, ``DataError``
    if no seed has a run of every value.
    """
    for setting in settings:
        check_varies(runs, setting, OPTION)
    check_comparable(runs, apart_from=settings)
    kept: list[Run] = []
    copies: list[tuple[Run, Run]] = []
    for members in grouped(runs, lambda run: _values(run, settings)).values():
        single, repeated = without_repeats(members)
        kept += single
        copies += repeated
    found = [
        one
        for group, members in grouped(kept, lambda run: settings_key(run, apart_from=settings)).items()
        for one in _best_by_target(group, members, settings)
    ]
    chosen = tuple(one for _, one in found if one is not None)
    return Choices(tuple(run for members, _ in found for run in members), chosen, tuple(copies))


def _values(run: Run, settings: Sequence[str]) -> Values:
    return tuple(hashable(value_of(run, setting)) for setting in settings)


def _best_by_target(
    group: tuple[Any, ...], runs: Sequence[Run], settings: Sequence[str]
) -> list[tuple[Sequence[Run], Chosen | None]]:
    """Return, for each held-out domain, the runs of one group that have the best value, and what was chosen."""
    own = tuple(setting for setting in settings if len({_values(run, [setting]) for run in runs}) > 1)
    by_target = grouped(runs, lambda run: run.target).values()
    if not own:
        return [(members, None) for members in by_target]
    values = {_values(run, own) for run in runs}
    return [_best(group, members, values, own) for members in by_target]


def _best(
    group: tuple[Any, ...], runs: Sequence[Run], values: set[Values], settings: tuple[str, ...]
) -> tuple[Sequence[Run], Chosen]:
    by_value = grouped(runs, lambda run: _values(run, settings))
    scores, seeds = _scores(by_value)
    first, expected = runs[0], ", ".join(_text(value) for value in sorted(values, key=_in_order))
    if not seeds or set(by_value) != values:
        raise DataError(
            f"{method_title(first.method)} with {first.target} held out has no seed with a score on source validation "
            f"for every value of {', '.join(settings)} ({OPTION}): {expected}."
        )
    value = _best_of(scores, first.record.score)
    return by_value[value], Chosen(group, first.target, settings, value, scores, seeds)


def _scores(by_value: Mapping[Values, Sequence[Run]]) -> tuple[dict[Values, float], tuple[int, ...]]:
    """Return the mean score on source validation of each value, and the seeds over which it is taken."""
    by_seed = {
        value: {run.seed: score for run in runs if (score := source_score(run.record)) is not None}
        for value, runs in by_value.items()
    }
    seeds = tuple(sorted(set.intersection(*(set(own) for own in by_seed.values()))))
    if not seeds:
        return {}, ()
    means = {value: statistics.fmean(own[seed] for seed in seeds) for value, own in by_seed.items()}
    return {value: means[value] for value in sorted(means, key=_in_order)}, seeds


def _in_order(value: Values) -> tuple[tuple[bool, float, str], ...]:
    """Return a key that sorts numbers by size, and before everything else, which is sorted by its text."""
    return tuple((False, float(one), "") if isinstance(one, int | float) else (True, 0.0, str(one)) for one in value)


def _best_of(scores: Mapping[Values, float], score: ScoreKind) -> Values:
    # Of equal means the first, also where the sums that they came from were rounded otherwise.
    return max(scores, key=lambda value: round(score.goodness(scores[value]), EQUAL_DIGITS))


def notes_on(chosen: Sequence[Chosen], titles: Mapping[tuple[Any, ...], str], score: ScoreKind) -> list[str]:
    """Return what was chosen in words, a sentence for each group: the value per held-out domain, and the scores.

    ``titles``: of the groups.
    """
    by_group: dict[tuple[Any, ...], list[Chosen]] = {}
    for one in chosen:
        by_group.setdefault(one.group, []).append(one)
    return [
        f"{titles[group]}: {', '.join(found[0].settings)} chosen for each held-out domain by {score.name} on "
        f"source validation, mean over seeds {_seeds_in_words(found)}, never by the held-out domain: "
        f"{'; '.join(_said(one, score) for one in found)}."
        for group, found in by_group.items()
    ]


def _seeds_in_words(found: Sequence[Chosen]) -> str:
    """Return the seeds of the scores, by held-out domain where they differ: ``0, 1 (photo), 0 (sketch)``."""
    if len({one.seeds for one in found}) == 1:
        return _listed(found[0].seeds)
    return ", ".join(f"{_listed(one.seeds)} ({one.target})" for one in found)


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _said(one: Chosen, score: ScoreKind) -> str:
    scores = ", ".join(f"{_text(value)}: {score.text(mean)}" for value, mean in one.scores.items())
    return f"{one.target} {_text(one.value)} ({scores})"


def _text(value: Values) -> str:
    return " and ".join(map(str, value))
