# SPDX-License-Identifier: Apache-2.0
"""Selection rules: which of a run's models determines the reported score on the held-out domain.

``last``, ``source_validation`` and ``oracle`` are the choices stored in the record. ``source_worst`` is derived from
its evaluations: among the models that every source of the run evaluated and that stand, the one with the best score on
its worst source domain, the earliest if several are equal. Without the score of its worst domain a model would look
better. The oracle uses the held-out domain; it bounds any selection and is not a result.
"""

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


def selected(record: RunRecord, rule: str) -> EvaluationRecord | None:
    """Return the evaluation of the model that ``rule`` chooses; None if it chooses none."""
    if rule == SOURCE_WORST:
        standing = [one for one in record.evaluations if one.source_worst is not None and not one.undone]
        judged = [one for one in standing if judged_by_all(record, one)]
        return max(judged, key=lambda found: record.score.goodness(found.source_worst or 0.0), default=None)
    chosen = [choice.after_round for choice in record.choices if choice.rule == rule]
    return next((found for found in record.evaluations if found.after_round in chosen), None)


def judged_by_all(record: RunRecord, evaluation: EvaluationRecord) -> bool:
    """Return whether every source of the run evaluated a model, also those that were not asked to."""
    return all(site in evaluation.sites for site in record.sources)


def source_score(record: RunRecord) -> float | None:
    """Return the score on source validation of the model that it selects; None if no model was evaluated there."""
    chosen = selected(record, SOURCE_VALIDATION)
    return None if chosen is None else record.source_score(chosen.after_round)


def target_score(record: RunRecord, rule: str, derived: str | None = None) -> float | None:
    """Return the chosen model's score on the held-out domain, not in percent; None if it was not evaluated there.

    ``derived`` names a score that the task derives, in place of the primary one.
    """
    evaluation = selected(record, rule)
    if evaluation is None or derived is None:
        return None if evaluation is None else evaluation.target
    return evaluation.derived.get(derived, {}).get(record.protocol.target)
