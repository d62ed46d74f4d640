# SPDX-License-Identifier: Apache-2.0
"""The record of a run: what is pooled, what is chosen, and what JSON makes of it."""

import gzip
import json
import math
from pathlib import Path
from typing import Literal

import pytest
import torch

from fdg_plugins.controllers import SCHEMA_VERSION, RunRecord
from fdg_plugins.errors import DataError, FDGError
from fdg_plugins.record.checkpoint import check_continues, other_arithmetic
from fdg_plugins.record.run_record import AggregationRecord, InitialWeights, domain_sums
from tests.controllers.federation_stubs import DOMAINS, census_reply, evaluation, round_record, run_record, scores


def choices(record: RunRecord) -> dict[str, int]:
    return {choice.rule: choice.after_round for choice in record.choose({})}


# --- means over domains -----------------------------------------------------------------------------


def test_sites_of_one_domain_are_pooled_over_their_examples() -> None:
    pooled = domain_sums(
        {"photo-2": evaluation(1.0, 30), "photo-1": evaluation(0.0, 10), "cartoon": evaluation(0.5, 7)}, DOMAINS
    )
    assert pooled == {"cartoon": {"accuracy": (3.5, 7)}, "photo": {"accuracy": (30.0, 40)}}
    assert list(pooled) == ["cartoon", "photo"]


def test_means_are_over_domains_and_not_over_sites() -> None:
    record = run_record()
    made = record.add_evaluation(0, scores(cartoon=0.2, photo_1=0.8, photo_2=0.8, sketch=0.4))
    assert made.domains == pytest.approx({"cartoon": 0.2, "photo": 0.8, "sketch": 0.4})
    assert made.source_mean == pytest.approx(0.5)
    assert made.source_worst == pytest.approx(0.2)
    assert made.target == pytest.approx(0.4)
    assert record.evaluations == [made]


def test_the_order_of_answers_changes_nothing() -> None:
    answers = scores(0.1, 0.2, 0.7, 0.3)
    backwards = dict(reversed(answers.items()))
    first, second = run_record().add_evaluation(1, answers), run_record().add_evaluation(1, backwards)
    assert first.model_dump_json() == second.model_dump_json()


def test_a_target_that_nobody_judged_is_none_and_not_zero() -> None:
    made = run_record().add_evaluation(0, scores(0.2, 0.8, 0.8))
    assert made.target is None
    assert made.source_mean == pytest.approx(0.5)


def test_a_part_of_the_held_out_sites_gives_no_score_of_the_target_and_wins_no_oracle() -> None:
    record = run_record()
    record.held_out = ("sketch", "sketch-2")
    record.census["sketch-2"] = census_reply("sketch")
    both = {name: evaluation(score, split="test") for name, score in (("sketch", 0.9), ("sketch-2", 0.1))}
    whole = record.add_evaluation(0, {**scores(0.2, 0.8, 0.8), **both})
    assert whole.target == whole.domains["sketch"] == pytest.approx(0.5)
    part = record.add_evaluation(1, scores(0.2, 0.8, 0.8, sketch=0.9))
    assert (part.target, "sketch" in part.domains, "sketch" in part.sites) == (None, False, True)
    assert choices(record) == {"last": 1, "source_validation": 0, "oracle": 0}


@pytest.mark.parametrize("missing", ["cartoon", "photo-1"])
def test_a_mean_over_some_of_the_sources_is_no_mean(missing: str) -> None:
    answers = scores(0.2, 0.8, 0.8, 0.4)
    del answers[missing]
    made = run_record().add_evaluation(0, answers)
    assert (made.source_mean, made.source_worst) == (None, None)
    assert made.target == pytest.approx(0.4)
    assert missing not in made.sites


# --- choices ----------------------------------------------------------------------------------------


def test_each_rule_chooses_by_its_own_number() -> None:
    record = run_record()
    for after_round, (source, target) in enumerate([(0.1, 0.9), (0.7, 0.2), (0.5, 0.3)]):
        record.add_evaluation(after_round, scores(source, source, source, target))
    assert choices(record) == {"last": 2, "source_validation": 1, "oracle": 0}


def test_the_earliest_model_wins_a_tie() -> None:
    record = run_record()
    for after_round, value in enumerate([0.1, 0.5, 0.5, 0.5]):
        record.add_evaluation(after_round, scores(value, value, value, value))
    assert choices(record) == {"last": 3, "source_validation": 1, "oracle": 1}


def test_nothing_is_chosen_from_no_numbers() -> None:
    empty = run_record()
    empty.add_evaluation(0, {})
    assert choices(empty) == {"last": 0}
    assert run_record().choose({}) == []


def test_a_source_that_misses_a_round_counts_with_its_last_known_accuracy() -> None:
    record = run_record()
    for after_round, (first, second) in enumerate([(0.4, 0.8), (0.5, None), (0.9, None), (0.6, 0.6)]):
        answers = {"cartoon": first, "photo-1": second}
        record.add_evaluation(after_round, {site: evaluation(v) for site, v in answers.items() if v is not None})
    # Means over both domains: 0.6, (0.5 + 0.8) / 2, (0.9 + 0.8) / 2, 0.6.
    assert choices(record) == {"last": 3, "source_validation": 2}


def test_a_mean_over_fewer_domains_selects_no_model_once_the_others_have_judged_one() -> None:
    """In the first rounds, only sites of the domain with the higher scores were drawn."""
    record = run_record()
    drawn = (
        (0, (None, 0.8)),
        (1, (None, 0.9)),
        (2, (0.4, None)),
        (3, (None, 0.93)),
        (4, (0.75, None)),
        (5, (0.7, 0.9)),
    )
    for after, (cartoon, photo) in drawn:
        of_sites = {"cartoon": cartoon, "photo-1": photo, "photo-2": photo}
        judged = {site: evaluation(score) for site, score in of_sites.items() if score is not None}
        record.add_evaluation(after, judged, expected=judged)
        expected = {0: 0, 1: 1, 2: 1, 3: 3, 4: 4, 5: 4}[after]  # the cartoons of the second are no reason for it
        assert choices(record)["source_validation"] == expected
    assert record.source_score(4) == pytest.approx((0.75 + 0.93) / 2)


@pytest.mark.parametrize("selection", ["mean", "median"])
def test_a_site_that_answers_late_does_not_decide_the_selection(selection: Literal["mean", "median"]) -> None:
    record = run_record(selection=selection)
    for after, score in enumerate((0.5, 0.6, 0.74, 0.7, 0.2)):
        late = {"photo-1": evaluation(1.0)} if after == 4 else {}
        record.add_evaluation(after, {"cartoon": evaluation(score), **late})
        assert choices(record)["source_validation"] == min(after, 2)


@pytest.mark.parametrize("selection", ["mean", "median"])
def test_which_sites_of_a_domain_answered_does_not_decide_the_selection(selection: Literal["mean", "median"]) -> None:
    record = run_record(selection=selection)
    for after, (cartoon, first, second) in enumerate([(0.1, 0.9, 0.1), (0.1, 0.9, None), (0.1, 0.92, 0.12)]):
        of_sites = {"cartoon": cartoon, "photo-1": first, "photo-2": second}
        record.add_evaluation(after, {site: evaluation(score) for site, score in of_sites.items() if score is not None})
    assert choices(record)["source_validation"] == 2
    assert record.source_score(1) == record.source_score(0)


def test_with_one_site_of_each_domain_drawn_a_model_is_compared_over_the_same_sites() -> None:
    """Each model is better than the one before it; photo-1, drawn for every second one, scores higher than photo-2."""
    record = run_record()
    for after in range(6):
        score, site = 0.1 * after, ("photo-1", "photo-2")[after % 2]
        drawn = {"cartoon": evaluation(score), site: evaluation(score + (0.4 if site == "photo-1" else 0.0))}
        record.add_evaluation(after, drawn, expected=drawn)
        assert choices(record)["source_validation"] == after
    assert record.source_score(5) == pytest.approx((0.5 + (0.8 + 0.5) / 2) / 2)


def test_a_source_that_is_gone_for_good_does_not_end_the_selection() -> None:
    record = run_record()
    record.add_evaluation(0, scores(0.1, 0.1, 0.1))
    for after_round in (1, 2, 3):
        record.add_evaluation(after_round, {"cartoon": evaluation(0.2 * after_round)})
        assert choices(record)["source_validation"] == after_round


def test_a_choice_names_its_file_and_the_oracle_has_none() -> None:
    record = run_record()
    record.add_evaluation(0, scores(0.1, 0.1, 0.1, 0.1))
    files = {choice.rule: choice.file for choice in record.choose({"last": "a", "source_validation": "b"})}
    assert files == {"last": "a", "source_validation": "b", "oracle": None}


# --- aggregation ------------------------------------------------------------------------------------


NUMBERS = ("weights", "coefficients", "update_norms", "cosines_with_mean", "cosines_with_direction")
REPORT = {"sites": ["b", "a"], **{name: [1.0, 2.0] for name in NUMBERS}, "mean_norm": 3.0, "direction_norm": 4.0}


def test_lists_of_a_report_are_keyed_by_site_in_the_order_of_the_report() -> None:
    record = AggregationRecord.from_report(REPORT)
    assert record.weights == record.cosines_with_direction == {"b": 1.0, "a": 2.0}
    assert (record.gamma, record.objective, record.mean_norm, record.own) == (None, None, 3.0, None)


def test_what_a_plug_in_reports_of_its_own_is_recorded_by_its_name_and_read_again() -> None:
    own = {"spread": 0.5, "loud": True, "kind": "plain", "own": 7, "rank": [2, None], "far": float("nan")}
    record = AggregationRecord.from_report({**REPORT, **own})
    assert record.own is not None
    assert record.own["rank"] == {"b": 2, "a": None}
    again = AggregationRecord.model_validate_json(record.model_dump_json())
    assert again.own == {**own, "rank": {"b": 2, "a": None}, "far": None}


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("weights", [1.0], r"weights has 1 values, expected one for each of \['b', 'a'\]"),
        ("gamma", "high", "gamma is 'high', but input should be a valid dictionary"),
        ("spread", [1.0], r"spread has 1 values, expected one for each of \['b', 'a'\]"),
        ("spread", torch.ones(2), r"own\.spread is tensor\(.*\), but expected a number"),
        ("spread", [[1.0], [2.0]], r"own\.spread is a mapping of 2 keys, but expected a number"),
        ("text", "x" * 10**6, r"own\.text is 'x.*, but expected a number.* or a text of at most 200 characters"),
        ("number", 10**100, r"own\.number is .*, but expected a number"),
        ("keys", {object(): 1.0}, r"own\.keys is a mapping of 1 keys, but expected a number"),
        ("x" * 1000, 1.0, "but string should have at most 200 characters"),
        ("many", {str(place): 1.0 for place in range(10**5)}, r"own\.many is a mapping of 100000 keys, but expected"),
    ],
)
def test_a_report_that_cannot_be_recorded_is_refused_by_its_name(name: str, value: object, what: str) -> None:
    with pytest.raises(FDGError, match=f"^the aggregator's report: .*{what}") as caught:
        AggregationRecord.from_report({**REPORT, name: value})
    assert len(str(caught.value)) < 600


# --- JSON -------------------------------------------------------------------------------------------


def full_record() -> RunRecord:
    record = run_record()
    record.add_evaluation(0, scores(0.1, 0.2, 0.3, 0.4))
    record.rounds += [round_record(1), round_record(2, aggregation=None, reason="too few came.")]
    record.choices = record.choose({"last": "a"})
    return record


def test_a_record_round_trips_through_json() -> None:
    record = full_record()
    text = record.model_dump_json(indent=1)
    assert RunRecord.model_validate_json(text) == record
    assert json.loads(text)["schema_version"] == SCHEMA_VERSION == 1


def test_losses_that_are_not_finite_are_null_in_json_and_can_be_read_back() -> None:
    record = run_record()
    record.add_evaluation(0, {"cartoon": evaluation(0.5, loss=math.nan), "photo-1": evaluation(0.5, loss=math.inf)})
    finished = round_record(1)
    finished.local["cartoon"].epoch_losses = (1.0, math.nan)
    record.rounds.append(finished)
    text = record.model_dump_json()
    value = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert [site["loss"] for site in value["evaluations"][0]["sites"].values()] == [None, None]
    assert value["rounds"][0]["local"]["cartoon"]["epoch_losses"] == [1.0, None]
    again = RunRecord.model_validate_json(text)
    assert math.isnan(again.evaluations[0].sites["cartoon"].loss)
    assert again.model_dump_json() == text


# --- records of earlier versions --------------------------------------------------------------------


def test_a_record_without_sums_is_read_with_the_same_numbers_and_written_with_both() -> None:
    kept = Path(__file__).parents[2] / "docs" / "results" / "records"
    file = kept / "pacs_small" / "fedomg-photo-seed0" / "results.json.gz"
    earlier = json.loads(gzip.decompress(file.read_bytes()))
    record = RunRecord.model_validate(earlier)
    written = json.loads(record.model_dump_json())
    for before, after in zip(earlier["evaluations"], written["evaluations"], strict=True):
        for site, score in before["sites"].items():
            found = after["sites"][site]
            assert {name: found[name] for name in score} == score
            right, count = round(score["accuracy"] * score["count"]), score["count"]
            assert found["sums"] == {"accuracy": {"sum": right, "count": count}}
    assert RunRecord.model_validate(written) == record
    assert record.choose({}) == [choice.model_copy(update={"file": None}) for choice in record.choices]


# --- going on ---------------------------------------------------------------------------------------


def test_a_run_does_not_go_on_with_a_site_that_chooses_another_precision_by_now() -> None:
    record, fresh = run_record(precision="auto"), run_record(precision="auto")
    check_continues(record, fresh)
    for of, precision in ((record, "bfloat16"), (fresh, "float32")):
        of.census["photo-2"] = of.census["photo-2"].model_copy(update={"precision": precision})
    with pytest.raises(DataError) as caught:
        check_continues(record, fresh)
    assert str(caught.value).endswith("its precision of site photo-2 was bfloat16, but is now float32.")
    record.census["photo-2"] = record.census["photo-2"].model_copy(update={"precision": None})
    check_continues(record, fresh)  # a record of an earlier version does not say


def test_a_run_does_not_go_on_with_other_initial_weights() -> None:
    record, fresh = run_record(), run_record()
    record.initial_weights = InitialWeights(label="pretrained file", file="/a/w.pth", sha256="a" * 64)
    fresh.initial_weights = InitialWeights(label="pretrained file", file="/moved/w.pth", sha256="a" * 64)
    check_continues(record, fresh)
    for other, found in (({"label": "from scratch"}, "from scratch"), ({"sha256": "b" * 64}, "pretrained file")):
        now = record.initial_weights.model_copy(update={"sha256": None, **other})
        fresh.initial_weights = now
        expected = rf"its source of the initial weights was pretrained file \(SHA-256 a{{64}}\), but is now {found}"
        with pytest.raises(DataError, match=expected):
            check_continues(record, fresh)


def test_what_a_run_goes_on_with_is_compared_with_what_it_began_with() -> None:
    record, fresh = run_record(), run_record()
    assert other_arithmetic(record, fresh) == {}
    fresh.versions["torch"] = "99.0"
    fresh.census["photo-2"] = fresh.census["photo-2"].model_copy(update={"device": "cuda:1", "compiled": True})
    fresh.census["cartoon"].versions["torch"] = "98.0"
    fresh.census["cartoon"].versions["new-package"] = "1.0"  # of which the earlier record says nothing
    assert other_arithmetic(record, fresh) == {
        "server": {"torch": "99.0"},
        "cartoon": {"torch": "98.0"},
        "photo-2": {"device": "cuda:1", "compiled": "yes"},
    }
    del record.census["photo-2"]
    assert "photo-2" not in other_arithmetic(record, fresh)
