# SPDX-License-Identifier: Apache-2.0
"""Which model of a run is reported, and which value of a setting (``fdg report --choose``).

``last``, ``source_validation`` and ``oracle`` are the choices stored in the record. ``source_worst`` is derived from
its evaluations: among the models that every source of the run evaluated and that stand, the one with the best score on
its worst source domain, the earliest if several are equal. Without the score of its worst domain a model would look
better. The oracle uses the held-out domain; it bounds any selection and is not a result.

For each value, a run's score is that of its model selected on source validation, on the same validation images of the
source domains; it is averaged over the seeds that all values have. The best value is chosen, of equal ones the first in
ascending order. The held-out domain takes no part, and neither do runs that hold out another domain: in these, its
images are sources.
"""

import statistics
from collections.abc import Callable, Hashable
from dataclasses import replace

from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis.comparable import Group, value_of
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.record.run_record import EvaluationRecord, RunRecord

LAST = "last"
SOURCE_VALIDATION = "source_validation"
SOURCE_WORST = "source_worst"
ORACLE = "oracle"

RULES = {
    LAST: "last round",
    SOURCE_VALIDATION: "source validation",
    SOURCE_WORST: "source validation, worst domain",
    ORACLE: "oracle (not a result)",
}
EQUAL_DIGITS = 12  # to which means agree that are equal but for rounding

Values = tuple[Hashable, ...]  # one of each setting that is chosen


def selected(record: RunRecord, rule: str) -> EvaluationRecord | None:
    """Return the evaluation of the model that ``rule`` chooses; None if it chooses none."""
    if rule == SOURCE_WORST:
        standing = [one for one in record.evaluations if one.source_worst is not None and not one.undone]
        judged = [one for one in standing if all(site in one.sites for site in record.sources)]
        return max(judged, key=lambda found: record.score.goodness(found.source_worst or 0.0), default=None)
    chosen = [choice.after_round for choice in record.choices if choice.rule == rule]
    return next((found for found in record.evaluations if found.after_round in chosen), None)


def source_score(record: RunRecord) -> float | None:
    """Return the score on source validation of the model that it selects; None if no model was evaluated there.

    The mean over the sites if each trained alone.
    """
    if record.alone:
        return _over_sites(record, source_score)
    chosen = selected(record, SOURCE_VALIDATION)
    return None if chosen is None else record.source_score(chosen.after_round)


def target_score(record: RunRecord, rule: str, derived: str | None = None) -> float | None:
    """Return the chosen model's score on the held-out domain, not in percent; None if it was not evaluated there.

    ``derived`` names a score that the task derives, in place of the primary one. Of sites that trained alone, whose
    models differ, it is the mean.
    """
    if record.alone:
        return _over_sites(record, lambda alone: target_score(alone, rule, derived))
    evaluation = selected(record, rule)
    if evaluation is None or derived is None:
        return None if evaluation is None else evaluation.target
    return evaluation.derived.get(derived, {}).get(record.protocol.target)


def _over_sites(record: RunRecord, score: Callable[[RunRecord], float | None]) -> float | None:
    values = [value for alone in record.alone if (value := score(alone)) is not None]
    return statistics.fmean(values) if len(values) == len(record.sources) else None


def choose(group: Group) -> tuple[Group, str]:
    """Return a method's runs with the best values of the settings that vary in it, and a note on what was chosen.

    The note has the value of each held-out domain, its seeds, and the scores of all values; it is empty where none
    varies. Raises ``DataError`` if no seed has a run of every value.
    """
    if not group.chosen:
        return group, ""

    kept, parts = list[Run](), list[str]()
    for target in dict.fromkeys(run.target for run in group.runs):
        best, told = _best(group, target)
        kept += [run for run in group.held_out(target) if _values(run, group) == best]
        parts.append(f"{target} {_text(best)} ({told})")
    return replace(group, runs=tuple(kept)), (
        f"{group.title}: {', '.join(group.chosen)} chosen for each held-out domain by "
        f"{group.runs[0].record.selecting.name} on source validation, never by the held-out domain: {'; '.join(parts)}."
    )


def _best(group: Group, target: str) -> tuple[Values, str]:
    """Return the best values for a held-out domain, and the scores of all with the seeds that they are over."""
    kind, values = group.runs[0].record.selecting, sorted({_values(run, group) for run in group.runs}, key=_order)
    by_value: dict[Values, dict[int, float]] = {value: {} for value in values}
    for run in group.held_out(target):
        if (score := source_score(run.record)) is not None:
            by_value[_values(run, group)][run.seed] = score
    if not (seeds := sorted(set.intersection(*map(set, by_value.values())))):
        raise DataError(
            f"{group.title} with {target} held out has no seed with a score on source validation for every value of "
            f"{', '.join(group.chosen)}: {', '.join(map(_text, by_value))}."
        )
    scores = {value: statistics.fmean(own[seed] for seed in seeds) for value, own in by_value.items()}
    told = ", ".join(f"{_text(value)}: {kind.text(mean)}" for value, mean in scores.items())
    # Of equal means the first, also where the sums that they came from were rounded otherwise.
    best = max(scores, key=lambda value: round(kind.goodness(scores[value]), EQUAL_DIGITS))
    return best, f"{told}; seeds {', '.join(map(str, seeds))}"


def _values(run: Run, group: Group) -> Values:
    return tuple(value_of(run, setting) for setting in group.chosen)


def _order(value: Values) -> list[tuple[bool, float, str]]:
    return [(False, float(one), "") if isinstance(one, int | float) else (True, 0.0, str(one)) for one in value]


def _text(value: Values) -> str:
    return " and ".join(map(str, value))
