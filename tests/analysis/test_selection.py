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


def test_target_score_of_each_rule() -> None:
    found = accuracies(finished(accuracies=TARGETS, sources=SOURCES))
    assert found == {"last": 0.6, "source_validation": 0.5, "source_worst": 0.7, "oracle": 0.7}
    other = accuracies(finished(accuracies=(0.1, 0.2, 0.9), sources=SOURCES))  # the held-out domain moves the oracle
    assert other == {"last": 0.9, "source_validation": 0.2, "source_worst": 0.1, "oracle": 0.9}
    missing = accuracies(finished(accuracies=(0.7, 0.5, None), sources=SOURCES))
    assert missing == {"last": None, "source_validation": 0.5, "source_worst": 0.7, "oracle": 0.7}
    assert set(accuracies(finished(accuracies=())).values()) == {None}


def test_source_worst_takes_the_earliest_of_equal_models_that_every_source_judged() -> None:
    record = finished(accuracies=TARGETS, sources=[(0.1, 0.9, 0.9), (0.2, 0.3, 0.4), (0.2, 0.8, 0.8)])
    assert target_score(record, "source_worst") == 0.5
    record = finished(accuracies=(0.1, 0.2), sources=[(0.2, 0.6, 0.6), (0.3, 0.6, 0.6)])
    drawn = dict.fromkeys(record.sources[1:], judged(0.7))  # without the source on which all models are worst
    record.add_evaluation(2, {**drawn, "photo": judged(0.9)}, expected=drawn)
    assert record.evaluations[-1].source_worst == 0.7
    assert target_score(record, "source_worst") == 0.2


def test_a_model_that_was_undone_is_chosen_by_no_rule() -> None:
    record = finished(accuracies=(0.7, 0.9, 0.6), sources=[(0.4, 0.4, 0.4), (0.9, 0.9, 0.9), (0.5, 0.5, 0.5)])
    record.evaluations[1].undone = True
    record.choices = record.choose({})
    assert accuracies(record) == {"last": 0.6, "source_validation": 0.6, "source_worst": 0.6, "oracle": 0.7}


def test_source_score_counts_the_last_known_one_of_an_absent_source() -> None:
    record = finished(accuracies=TARGETS, sources=[(0.75, 0.75, 0.3), (0.76, 0.76, 0.2), (0.1, 0.1, 0.1)])
    second = record.evaluations[1]
    answered = {site: second.sites[site] for site in second.sites if site != record.sources[-1]}
    record.evaluations[1] = second.model_copy(update={"sites": answered})
    record.choices = record.choose({})
    assert source_score(record) == pytest.approx((0.76 + 0.76 + 0.3) / 3)
