# SPDX-License-Identifier: Apache-2.0
"""The text of a growing record is pydantic's, byte for byte, and no part of it is encoded twice."""

import math
from collections import Counter
from typing import Any

import pydantic
import pytest

from fdg_plugins.record import record_text
from fdg_plugins.record.record_text import RecordText
from fdg_plugins.record.run_record import RunRecord
from tests.controllers.federation_stubs import evaluation, round_record, run_record, scores

INDENTS = (None, 0, 1, 2)


def go_on(record: RunRecord, number: int) -> None:
    """Add a round and an evaluation, with what is awkward in JSON: lines, quotes, no number, nothing."""
    reason = f'"rounds": [],\n "evaluations": [] of {number} \u2028 é'
    record.rounds.append(round_record(number, failures={"photo-2": reason}, seconds=math.inf))
    record.add_evaluation(number - 1, {**scores(0.1, 0.2, 0.3, 0.4), "photo-1": evaluation(0.5, 8, loss=math.nan)})
    record.choices = record.choose({"last": "global_model.safetensors"})
    record.seconds = 1.5 * number


@pytest.mark.parametrize("indent", INDENTS)
def test_the_text_is_that_of_pydantic_after_every_round(indent: int | None) -> None:
    record, text = run_record(), RecordText(indent)
    assert text.of(record) == record.model_dump_json(indent=indent), "before the first round"
    for number in range(1, 6):
        go_on(record, number)
        assert text.of(record) == record.model_dump_json(indent=indent)
    record.status = "finished"
    assert text.of(record) == record.model_dump_json(indent=indent)


@pytest.mark.parametrize("indent", INDENTS)
def test_a_step_that_is_undone_later_is_undone_in_the_text(indent: int | None) -> None:
    record, text = run_record(), RecordText(indent)
    for number in range(1, 5):
        go_on(record, number)
    before = text.of(record)
    record.rounds[1].undone = True
    record.evaluations[2].undone = True
    assert text.of(record) == record.model_dump_json(indent=indent) != before


def test_another_record_is_another_text() -> None:
    text = RecordText(1)
    for rounds in (3, 2, 4):
        record = run_record()
        for number in range(1, rounds + 1):
            go_on(record, number)
        assert text.of(record) == record.model_dump_json(indent=1)


def test_a_round_is_encoded_once_however_many_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: Counter[int] = Counter()

    class Counting:
        def __init__(self, known: "pydantic.TypeAdapter[Any]") -> None:
            self._known = known

        def dump_json(self, part: Any, **options: Any) -> bytes:
            encoded[id(part)] += 1
            return self._known.dump_json(part, **options)

    monkeypatch.setattr(record_text, "_ROUND", Counting(record_text._ROUND))
    monkeypatch.setattr(record_text, "_EVALUATION", Counting(record_text._EVALUATION))
    record, text = run_record(), RecordText(1)
    for number in range(1, 11):
        go_on(record, number)
        text.of(record)
    assert encoded == Counter(id(part) for part in (*record.rounds, *record.evaluations))
