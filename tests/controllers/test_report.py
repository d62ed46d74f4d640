# SPDX-License-Identifier: Apache-2.0
"""What a person reads: no number without its marks, and nothing missing is shown as zero."""

from typing import Any

from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import final_table, round_line
from tests.controllers.federation_stubs import round_record, run_record, scores


def finished_record(**changes: Any) -> RunRecord:
    record = run_record(**changes)
    record.add_evaluation(0, scores(0.1, 0.2, 0.2, 0.5))
    record.add_evaluation(1, scores(0.75, 0.5, 1.0, 0.25))
    record.add_evaluation(2, scores(0.5, 0.5, 0.5, 0.125))
    record.rounds += [round_record(1), round_record(2)]
    record.choices = record.choose({})
    return record


# --- lines ------------------------------------------------------------------------------------------


def test_the_line_of_a_round_says_who_took_part_how_good_the_model_was_and_how_long_is_left() -> None:
    record = run_record(rounds=10)
    received = record.add_evaluation(2, scores(0.75, 0.5, 1.0, 0.25))
    record.rounds += [round_record(1, seconds=1000.0), *(round_record(number, seconds=20.0) for number in range(2, 7))]
    assert round_line(record, record.rounds[-1], received) == (
        "round 6/10 | sites 2/3 | train loss 1.2500 | model after round 2: source val 75.0 %, target sketch 25.0 % | "
        "20.0 s | ETA 1 min 20 s"
    )


# --- table ------------------------------------------------------------------------------------------


def cells(line: str) -> list[str]:
    return [cell for cell in line.split("  ") if cell.strip()]


def test_the_table_shows_each_choice_with_its_round_and_its_accuracies() -> None:
    title, method, head, rule, *rows, note = final_table(finished_record()).splitlines()
    assert title == "Accuracy of the global model: PACS, convnet, 224 px, seed 0"
    assert method == "FedOMG, 2 rounds"
    assert [cell.strip() for cell in cells(head)] == [
        "model",
        "cartoon",
        "photo",
        "source mean",
        "worst source",
        "target sketch",
    ]
    assert [[cell.strip() for cell in cells(row)] for row in rows] == [
        ["last (round 2)", "50.0 %", "50.0 %", "50.0 %", "50.0 %", "12.5 %"],
        ["selected by source validation (round 1)", "75.0 %", "75.0 %", "75.0 %", "75.0 %", "25.0 %"],
        ["oracle: chosen on the target, not a result (round 0)", "10.0 %", "20.0 %", "15.0 %", "10.0 %", "50.0 %"],
    ]
    assert set(rule) == {"-"}
    assert "validation splits, the target on all its images" in note


def test_the_table_carries_the_marks_of_the_run() -> None:
    title = final_table(finished_record(stand_in=True, label="from scratch")).splitlines()[0]
    assert title.startswith("Accuracy of the global model [STAND-IN, from scratch]: STAND-IN for PACS, ")
