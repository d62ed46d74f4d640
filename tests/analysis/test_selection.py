# SPDX-License-Identifier: Apache-2.0
"""Selection rules: each reports the held-out accuracy of the model that its own number chose."""

import pytest

from fdg_plugins.controllers import RunRecord
from fdg_plugins.lab.analysis import RULES, target_score
from fdg_plugins.lab.analysis.selection import source_score
from tests.analysis.run_stubs import evaluation as judged
from tests.analysis.run_stubs import finished

# Three models: mean over sources 0.4, 0.6, 0.5; worst source 0.4, 0.1, 0.2; held-out domain 0.7, 0.5, 0.6.
SOURCES = [(0.4, 0.4, 0.4), (0.1, 0.8, 0.9), (0.2, 0.6, 0.7)]
TARGETS = (0.7, 0.5, 0.6)


def accuracies(record: RunRecord) -> dict[str, float | None]:
    return {rule: target_score(record, rule) for rule in RULES}


def test_each_rule_chooses_by_its_own_number() -> None:
    found = accuracies(finished(accuracies=TARGETS, sources=SOURCES))
    assert found == {"last": 0.6, "source_validation": 0.5, "source_worst": 0.7, "oracle": 0.7}


def test_of_equal_worst_sources_the_earliest_model_is_taken() -> None:
    record = finished(accuracies=TARGETS, sources=[(0.1, 0.9, 0.9), (0.2, 0.3, 0.4), (0.2, 0.8, 0.8)])
    assert target_score(record, "source_worst") == 0.5


def test_a_worst_source_that_is_not_known_chooses_nothing() -> None:
    record = finished(accuracies=TARGETS, sources=SOURCES)
    record.evaluations[0].source_worst = None
    assert target_score(record, "source_worst") == 0.6
    for evaluation in record.evaluations:
        evaluation.source_worst = None
    assert target_score(record, "source_worst") is None


def test_a_model_that_its_worst_source_never_judged_is_not_chosen() -> None:
    record = finished(accuracies=(0.1, 0.2), sources=[(0.2, 0.6, 0.6), (0.3, 0.6, 0.6)])
    drawn = dict.fromkeys(record.sources[1:], judged(0.7))  # without the source on which all models are worst
    record.add_evaluation(2, {**drawn, "photo": judged(0.9)}, expected=drawn)
    assert record.evaluations[-1].source_worst == 0.7
    assert target_score(record, "source_worst") == 0.2


def test_a_model_that_was_taken_back_is_chosen_by_no_rule() -> None:
    record = finished(accuracies=(0.7, 0.9, 0.6), sources=[(0.4, 0.4, 0.4), (0.9, 0.9, 0.9), (0.5, 0.5, 0.5)])
    record.evaluations[1].undone = True
    record.choices = record.choose({})
    assert accuracies(record) == {"last": 0.6, "source_validation": 0.6, "source_worst": 0.6, "oracle": 0.7}


def test_the_score_of_the_selected_model_counts_the_last_known_one_of_a_source_that_was_absent() -> None:
    record = finished(accuracies=TARGETS, sources=[(0.75, 0.75, 0.3), (0.76, 0.76, 0.2), (0.1, 0.1, 0.1)])
    evaluation = record.evaluations[1]
    evaluation.sites.pop(record.sources[-1])
    record.choices = record.choose({})
    assert source_score(record) == pytest.approx((0.76 + 0.76 + 0.3) / 3)


def test_a_target_that_nobody_judged_is_none_and_not_zero() -> None:
    record = finished(accuracies=(0.7, 0.5, None), sources=SOURCES)
    assert accuracies(record) == {"last": None, "source_validation": 0.5, "source_worst": 0.7, "oracle": 0.7}


@pytest.mark.parametrize("rule", RULES)
def test_a_run_without_evaluations_has_no_accuracy(rule: str) -> None:
    assert target_score(finished(accuracies=()), rule) is None


def test_the_held_out_domain_moves_no_rule_but_the_oracle() -> None:
    better = finished(accuracies=(0.1, 0.2, 0.9), sources=SOURCES)
    chosen = {rule: target_score(better, rule) for rule in RULES}
    assert chosen == {"last": 0.9, "source_validation": 0.2, "source_worst": 0.1, "oracle": 0.9}
