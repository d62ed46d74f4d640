# SPDX-License-Identifier: Apache-2.0
"""Selection rules: which of a run's models is the one whose score on the held-out domain is reported.

``last``, ``source_validation`` and ``oracle`` are the choices that the record holds. ``source_worst`` follows from its
evaluations: the model whose score on its worst source domain is best, the earliest of equals, among those that
every source judged. The oracle looks at the held-out domain; it bounds what a selection could reach and is no result.
"""

from fdg_plugins.record.run_record import EvaluationRecord, RunRecord

LAST = "last"
SOURCE_VALIDATION = "source_validation"
SOURCE_WORST = "source_worst"
ORACLE = "oracle"

RULES = {
    LAST: "last round",
    SOURCE_VALIDATION: "source validation, mean",
    SOURCE_WORST: "source validation, worst domain",
    ORACLE: "oracle (not a result)",
}


def selected(record: RunRecord, rule: str) -> EvaluationRecord | None:
    """Return the evaluation of the model that ``rule`` chooses; None if it chooses none."""
    if rule == SOURCE_WORST:
        judged = [evaluation for evaluation in record.evaluations if evaluation.source_worst is not None]
        return max(judged, key=lambda found: record.score.goodness(found.source_worst or 0.0), default=None)
    chosen = [choice.after_round for choice in record.choices if choice.rule == rule]
    return next((found for found in record.evaluations if found.after_round in chosen), None)


def target_score(record: RunRecord, rule: str) -> float | None:
    """Return the score, no percentage, of the chosen model on the held-out domain; None if nobody judged it there."""
    evaluation = selected(record, rule)
    return None if evaluation is None else evaluation.target
