# SPDX-License-Identifier: Apache-2.0
"""What a person reads: no number without its marks, and nothing missing is shown as zero."""

from typing import Any

import pytest

from fdg_plugins.privacy.reasons import make_reason
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import DETAILS, duration, evaluation_line, final_table, marks, precision_line, round_line
from tests.controllers.federation_stubs import evaluation, round_record, run_record, scores


def finished_record(**changes: Any) -> RunRecord:
    record = run_record(**changes)
    record.add_evaluation(0, scores(0.1, 0.2, 0.2, 0.5))
    record.add_evaluation(1, scores(0.75, 0.5, 1.0, 0.25))
    record.add_evaluation(2, scores(0.5, 0.5, 0.5, 0.125))
    record.rounds += [round_record(1), round_record(2)]
    record.choices = record.choose({})
    return record


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.0 %"), (1.0, "100.0 %"), (0.8125, "81.2 %"), (2 / 3, "66.7 %"), (None, "missing")]
)
def test_fractions_are_shown_as_percent(value: float | None, text: str) -> None:
    assert run_record().score.text(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (41.4, "41 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (360_000, "100 h 00 min"),
    ],
)
def test_seconds_are_shown_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("stand_in", "label", "text"),
    [
        (False, "imagenet", ""),
        (True, "imagenet", "STAND-IN"),
        (False, "from scratch", "from scratch"),
        (True, "from scratch", "STAND-IN, from scratch"),
    ],
)
def test_a_run_is_marked_by_what_its_numbers_are_not(stand_in: bool, label: str, text: str) -> None:
    assert marks(run_record(stand_in=stand_in, label=label)) == text


# --- lines ------------------------------------------------------------------------------------------


def test_the_line_of_a_round_says_who_took_part_how_good_the_model_was_and_how_long_is_left() -> None:
    record = run_record(rounds=10)
    received = record.add_evaluation(2, scores(0.75, 0.5, 1.0, 0.25))
    record.rounds += [round_record(1, seconds=1000.0), *(round_record(number, seconds=20.0) for number in range(2, 7))]
    assert round_line(record, record.rounds[-1], received) == (
        "round 6/10 | sites 2/3 | train loss 1.2500 | model after round 2: source val 75.0 %, target sketch 25.0 % | "
        "20.0 s | ETA 1 min 20 s"
    )


def test_the_precisions_that_sites_chose_are_told_by_site() -> None:
    record = run_record(precision="auto")

    def choose(**precisions: str) -> None:
        for site, precision in precisions.items():
            record.census[site] = record.census[site].model_copy(update={"precision": precision})

    choose(cartoon="bfloat16", sketch="float32", **dict.fromkeys(("photo-1", "photo-2"), "float32"))
    assert precision_line(record) == "precision auto: bfloat16 at cartoon; float32 at photo-1, photo-2, sketch"
    choose(cartoon="float32")
    assert precision_line(record) == "precision auto: float32 at every site"


def test_the_line_of_a_round_calls_what_is_missing_missing() -> None:
    record = run_record()
    received = record.add_evaluation(0, {"cartoon": evaluation(0.5)})
    record.rounds.append(round_record(1, local={}, sites=(), aggregation=None))
    line = round_line(record, record.rounds[0], received)
    assert "sites 0/3 | train loss missing | initial model: source val missing, target sketch missing" in line


def test_reasons_that_differ_in_the_number_of_the_sites_log_alone_count_as_one() -> None:
    told = {make_reason("out of memory at /data", "out of memory.", names=False).told for _ in range(2)}
    assert len(told) == 2
    assert {reason.split(DETAILS)[0] for reason in told} == {"out of memory"}


def test_the_line_of_a_round_that_left_the_model_says_so_and_why() -> None:
    record = run_record()
    received = record.add_evaluation(0, scores(0.75, 0.5, 1.0, 0.25))
    record.rounds.append(round_record(1, aggregation=None, reason="1 usable updates came, fewer than min_sites 2."))
    line = round_line(record, record.rounds[0], received)
    assert line.endswith(" | model unchanged: 1 usable updates came, fewer than min_sites 2; photo-2: was away")
    record.rounds[0].failures.update(
        {"photo-1": "objective O raised KeyError.", "cartoon": "objective O raised KeyError."}
    )
    line = round_line(record, record.rounds[0], received)
    assert line.endswith("fewer than min_sites 2; cartoon and 1 more: objective O raised KeyError")
    details = "objective O raised KeyError (details in the site's own log under {})."
    record.rounds[0].failures.update({"photo-1": details.format("1f"), "cartoon": details.format("2e")})
    line = round_line(record, record.rounds[0], received)
    assert line.endswith("; cartoon and 1 more: objective O raised KeyError (details in the site's own log under 2e)")
    record.rounds[0].failures.clear()
    assert round_line(record, record.rounds[0], received).endswith("fewer than min_sites 2")
    record.rounds.append(round_record(2))
    assert "unchanged" not in round_line(record, record.rounds[1], received)


def test_the_line_of_an_evaluation_names_the_model_and_the_target() -> None:
    received = run_record().add_evaluation(2, scores(0.75, 0.5, 1.0))
    assert evaluation_line(run_record(), received) == ("model after round 2: source val 75.0 %, target sketch missing")


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


def test_below_the_table_stand_the_rounds_that_left_the_model_with_the_last_reason() -> None:
    record = finished_record()
    record.rounds[1] = round_record(2, aggregation=None, reason="ArithmeticError: too\nflat.")
    assert final_table(record).splitlines()[-1] == (
        "1 of 2 rounds left the model unchanged; the last, round 2, because: ArithmeticError: too flat."
    )


def test_the_columns_of_the_table_are_aligned() -> None:
    _, _, head, rule, *rows, _ = final_table(finished_record()).splitlines()
    assert {len(line) for line in (head, rule, *rows)} == {len(head)}
    ends = {
        head.index(name) + len(name) for name in ("cartoon", "photo", "source mean", "worst source", "target sketch")
    }
    for row in rows:
        assert {end for end in ends if row[end - 1] == "%"} == ends


def test_the_table_carries_the_marks_of_the_run() -> None:
    title = final_table(finished_record(stand_in=True, label="from scratch")).splitlines()[0]
    assert title.startswith("Accuracy of the global model [STAND-IN, from scratch]: STAND-IN for PACS, ")


def test_the_table_says_what_was_trained_of_a_network_that_was_not_trained_whole() -> None:
    record = finished_record()
    record.protocol = record.protocol.model_copy(update={"trainable": "adapters", "adapter_rank": 4})
    title = final_table(record).splitlines()[0]
    assert title.endswith(": PACS, convnet, head and adapters of rank 4 trained, 224 px, seed 0")


def test_the_table_has_no_mean_of_a_model_that_only_some_domains_judged() -> None:
    """All sites that were drawn answered, but those of one domain were not drawn."""
    record = run_record()
    judged = {"cartoon": evaluation(0.5), "sketch": evaluation(0.25)}
    assert record.add_evaluation(0, judged, expected=("cartoon",)).source_mean == pytest.approx(0.5)
    record.choices = record.choose({})
    row = next(line for line in final_table(record).splitlines() if line.startswith("last"))
    assert [cell.strip() for cell in cells(row)] == [
        "last (round 0)",
        "50.0 %",
        "missing",
        "missing",
        "missing",
        "25.0 %",
    ]


def test_the_table_calls_what_is_missing_missing() -> None:
    record = run_record()
    record.add_evaluation(0, {"cartoon": evaluation(0.5)})
    record.choices = record.choose({})
    rows = final_table(record).splitlines()[4:-1]
    assert [[cell.strip() for cell in cells(row)] for row in rows] == [
        ["last (round 0)", "50.0 %", "missing", "missing", "missing", "missing"],
        ["selected by source validation (round 0)", "50.0 %", "missing", "missing", "missing", "missing"],
    ]
