# SPDX-License-Identifier: Apache-2.0
"""The record of a run: what is pooled, what is chosen, what JSON and tracking make of it, and what may go on."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsData, AnalyticsDataType
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent

from fdg_plugins.controllers import tracking
from fdg_plugins.controllers.run_files import keep_results
from fdg_plugins.controllers.tracking import Tracker, evaluation_scalars, round_scalars
from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.models import InitialWeights
from fdg_plugins.record.checkpoint import (
    CHECKPOINT_FILE,
    Checkpoint,
    check_continues,
    other_arithmetic,
    read_checkpoint,
)
from fdg_plugins.record.round_record import AggregationRecord
from fdg_plugins.record.run_record import SCHEMA_VERSION, RunRecord
from fdg_plugins.record.text import final_table
from tests.controllers.federation_stubs import (
    Engine,
    census_reply,
    context_of,
    evaluation,
    round_record,
    run_record,
    scores,
)

MEAN, MEDIAN = "mean", "median"


def choices(record: RunRecord) -> dict[str, int]:
    return {choice.rule: choice.after_round for choice in record.choose({})}


def test_means_are_over_domains_in_any_order_of_answers() -> None:
    answers = scores(cartoon=0.2, photo_1=0.8, photo_2=0.8, sketch=0.4)
    record = run_record()
    made = record.add_evaluation(0, answers)
    assert made.domains == pytest.approx({"cartoon": 0.2, "photo": 0.8, "sketch": 0.4})
    assert (made.source_mean, made.source_worst, made.target) == pytest.approx((0.5, 0.2, 0.4))
    assert record.evaluations == [made]
    assert run_record().add_evaluation(0, dict(reversed(answers.items()))).model_dump_json() == made.model_dump_json()


def test_own_models_are_pooled_over_samples_and_meaned_over_domains() -> None:
    own = {"cartoon": evaluation(0.2, count=30), "photo-1": evaluation(0.8), "photo-2": evaluation(0.6)}
    made = run_record().add_evaluation(0, scores(0.1, 0.1, 0.1), personal=own).personal
    assert made is not None
    assert (made.pooled, made.source_mean) == pytest.approx(((6 + 8 + 6) / 50, (0.2 + 0.7) / 2))


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


def test_a_mean_over_some_of_the_sources_is_no_mean() -> None:
    answers = scores(0.2, 0.8, 0.8, 0.4)
    del answers["photo-1"]
    made = run_record().add_evaluation(0, answers)
    assert (made.source_mean, made.source_worst) == (None, None)
    assert made.target == pytest.approx(0.4)


Scores = tuple[float | None, float | None, float | None]  # of cartoon, photo-1, photo-2
# cartoon says 1.0 of one model and 0.0 of the others.
OF_A_LIAR: list[Scores] = [(0.0, 0.4, 0.4), (1.0, 0.5, 0.5), (0.0, 0.6, 0.6)]
# Each model is better than the one before; photo-1, drawn for every second one, scores higher than photo-2.
TAKING_TURNS: list[Scores] = [(0.1 * n, *((0.1 * n + 0.4, None) if n % 2 == 0 else (None, 0.1 * n))) for n in range(6)]


@pytest.mark.parametrize(
    ("selection", "rounds", "chosen"),
    [
        (MEAN, [(0.1,) * 3, (0.5,) * 3, (0.5,) * 3], [0, 1, 1]),  # the earliest of equal ones
        # A source that misses a round counts with its last known score: 0.6, (0.5 + 0.8) / 2, (0.9 + 0.8) / 2, 0.6.
        (MEAN, [(0.4, 0.8, None), (0.5, None, None), (0.9, None, None), (0.6, 0.6, None)], [0, 1, 2, 2]),
        # A mean over fewer domains selects nothing once the others have judged.
        (
            MEAN,
            [(None, 0.8, 0.8), (None, 0.9, 0.9), (0.4, None, None), (None, 0.93, 0.93), (0.75, None, None)],
            [0, 1, 1, 3, 4],
        ),
        # A site that answers late decides nothing.
        (
            MEAN,
            [(0.5, None, None), (0.6, None, None), (0.74, None, None), (0.7, None, None), (0.2, 1.0, None)],
            [0, 1, 2, 2, 2],
        ),
        # Nor does it matter which sites of a domain answered.
        (MEDIAN, [(0.1, 0.9, 0.1), (0.1, 0.9, None), (0.1, 0.92, 0.12)], [0, 0, 2]),
        (MEAN, OF_A_LIAR, [0, 1, 1]),
        (MEDIAN, OF_A_LIAR, [0, 1, 2]),
        (MEAN, TAKING_TURNS, list(range(6))),  # models are compared over the same sites
    ],
)
def test_source_validation_selects(selection: str, rounds: list[Scores], chosen: list[int]) -> None:
    record = run_record(selection=selection)
    for after, values in enumerate(rounds):
        of_sites = zip(("cartoon", "photo-1", "photo-2"), values, strict=True)
        judged = {site: evaluation(score) for site, score in of_sites if score is not None}
        record.add_evaluation(after, judged, expected=judged)
        assert choices(record)["source_validation"] == chosen[after]


NUMBERS = ("weights", "coefficients", "update_norms", "cosines_with_mean", "cosines_with_direction")
REPORT = {"sites": ["b", "a"], **{name: [1.0, 2.0] for name in NUMBERS}, "mean_norm": 3.0, "direction_norm": 4.0}


def test_lists_of_a_report_are_keyed_by_site_and_what_a_plug_in_reports_of_its_own_by_its_name() -> None:
    own = {"spread": 0.5, "loud": True, "kind": "plain", "own": 7, "rank": [2, None], "far": float("nan")}
    record = AggregationRecord.from_report({**REPORT, **own})
    assert record.weights == record.cosines_with_direction == {"b": 1.0, "a": 2.0}
    assert (record.gamma, record.mean_norm, AggregationRecord.from_report(REPORT).own) == (None, 3.0, None)
    again = AggregationRecord.model_validate_json(record.model_dump_json())
    assert again.own == {**own, "rank": {"b": 2, "a": None}, "far": None}


@pytest.mark.parametrize(
    ("name", "value"), [("weights", [1.0]), ("gamma", "high"), ("spread", torch.ones(2)), ("keys", {object(): 1.0})]
)
def test_a_report_that_cannot_be_recorded_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(FDGError) as caught:
        AggregationRecord.from_report({**REPORT, name: value})
    assert str(caught.value).startswith("the aggregator's report: ")
    assert name in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_record_round_trips_through_json_with_null_for_what_is_not_finite() -> None:
    record = run_record()
    record.add_evaluation(0, {"cartoon": evaluation(0.5, loss=math.nan), "photo-1": evaluation(0.5, loss=math.inf)})
    record.rounds += [round_record(1), round_record(2, aggregation=None, reason="too few came.")]
    record.rounds[0].local["cartoon"].epoch_losses = (1.0, math.nan)
    record.choices = record.choose({"last": "a"})
    text = record.model_dump_json()
    value = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert value["schema_version"] == SCHEMA_VERSION == 1
    assert [site["loss"] for site in value["evaluations"][0]["sites"].values()] == [None, None]
    assert value["rounds"][0]["local"]["cartoon"]["epoch_losses"] == [1.0, None]
    assert not {"derived", "personal"} & value["evaluations"][0].keys()
    assert RunRecord.model_validate_json(text).model_dump_json() == text


@pytest.mark.slow
def test_a_record_longer_than_the_header_of_a_file_may_be_is_in_the_checkpoint_and_read(tmp_path: Path) -> None:
    record, path = run_record(), tmp_path / CHECKPOINT_FILE
    record.stopped_because = " " * 100_000_000  # as many bytes as names and metadata may have
    record.rounds.append(round_record(1))
    Checkpoint(record, {"weight": torch.ones(2)}, {"step": 1}, {}).write(path)
    found = read_checkpoint(path, record.run)
    assert (found.record, found.aggregator) == (record, {"step": 1})
    assert list(found.model) == ["weight"]


def set_weights(record: RunRecord, **fields: Any) -> None:
    weights = {"label": "pretrained file", "file": "/a/w.pth", "sha256": "a" * 64, **fields}
    record.initial_weights = InitialWeights(**weights)


def set_reply(record: RunRecord, **fields: Any) -> None:
    record.census["photo-2"] = record.census["photo-2"].model_copy(update=fields)


Change = Callable[[RunRecord], object]


@pytest.mark.parametrize(
    ("then", "now", "what"),
    [
        (set_weights, lambda fresh: set_weights(fresh, file="/moved/w.pth"), None),
        (set_weights, lambda fresh: set_weights(fresh, sha256="b" * 64), "source of the initial weights"),
        (lambda _: None, lambda fresh: set_reply(fresh, precision="float32"), None),  # an earlier version's record
        (
            lambda record: set_reply(record, precision="bfloat16"),
            lambda fresh: set_reply(fresh, precision="float32"),
            "precision of site photo-2 was bfloat16, but is now float32",
        ),
        (lambda _: None, lambda fresh: set_reply(fresh, split_hash="other"), "split of site photo-2"),
        (lambda _: None, lambda fresh: setattr(fresh, "sources", ("cartoon",)), "sources"),
        (
            lambda _: None,
            lambda fresh: setattr(fresh, "protocol", fresh.protocol.model_copy(update={"rounds": 5})),
            "setting rounds was 2, but is now 5",
        ),
        (lambda _: None, lambda fresh: setattr(fresh.method, "aggregator", "FedAvgAggregator"), "method"),
        (
            lambda record: record.versions.update({"fdg-plugins": "0.2.0"}),
            lambda fresh: fresh.versions.update({"fdg-plugins": "0.3.0"}),
            "version of fdg-plugins was 0.2, but is now 0.3",
        ),
    ],
)
def test_a_run_goes_on_only_as_it_began(then: Change, now: Change, what: str | None) -> None:
    record, fresh = run_record(), run_record()
    then(record)
    then(fresh)
    check_continues(record, fresh)
    now(fresh)
    if what is None:
        check_continues(record, fresh)
    else:
        with pytest.raises(DataError, match=f"cannot go on: its {what}"):
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


# --- what a person reads, and what is left of a simulation ---


def test_the_table_shows_each_choice_with_its_round_its_accuracies_and_the_marks_of_the_run() -> None:
    record = run_record(stand_in=True, label="from scratch")
    for after, values in enumerate([(0.1, 0.2, 0.2, 0.5), (0.75, 0.5, 1.0, 0.25), (0.5, 0.5, 0.5, 0.125)]):
        record.add_evaluation(after, scores(*values))
    record.rounds += [round_record(1), round_record(2)]
    record.choices = record.choose({})
    title, method, head, _, *rows, _ = final_table(record).splitlines()
    assert title.startswith("Accuracy of the global model [STAND-IN, from scratch]: STAND-IN for PACS, ")
    assert method == "FedOMG, 2 rounds"
    cells = [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in (head, *rows)]
    assert cells == [
        ["model", "cartoon", "photo", "source mean", "worst source", "target sketch"],
        ["last (round 2)", "50.0 %", "50.0 %", "50.0 %", "50.0 %", "12.5 %"],
        ["selected by source validation (round 1)", "75.0 %", "75.0 %", "75.0 %", "75.0 %", "25.0 %"],
        ["oracle: chosen on the target, not a result (round 0)", "10.0 %", "20.0 %", "15.0 %", "10.0 %", "50.0 %"],
    ]


def test_results_of_a_simulation_outlive_its_workspace_and_never_replace_those_of_another_one(tmp_path: Path) -> None:
    results = tmp_path / "workspace" / "server" / "simulate_job"
    (results / "tb_events").mkdir(parents=True)
    for name in ("results.json", "tb_events/events", "mlflow.db", "meta.json"):
        (results / name).write_text(name)
    folder, other = (keep_results(results, tmp_path / "workspace", "run") for _ in range(2))
    assert folder != other
    shutil.rmtree(tmp_path / "workspace")
    assert folder.parent == tmp_path / "runs"
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert left == {"results.json", "tb_events/events", "mlflow.db"}


def test_numbers_are_sent_as_events_at_their_round_with_the_mark_of_the_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation, finished = run_record().add_evaluation(2, scores(0.25, 0.75, 0.75, 0.5)), round_record(3)
    of_round = dict(round_scalars(finished))
    assert (of_round["round/sites"], of_round["train_loss/photo-1"], of_round["server/idle"]) == (2.0, 1.5, 0.0)
    assert (of_round["weights/cartoon"], of_round["server/direction_norm"]) == (0.25, 2.5)
    engine = Engine(tmp_path)
    told: list[str] = []
    receiver = SimpleNamespace(handle_event=lambda event, fl_ctx: told.append(event))
    monkeypatch.setattr(tracking, "make_receiver", lambda *_: receiver)
    with Tracker(FLComponent(), run_record(stand_in=True), "mlflow", context_of(engine)) as tracker:
        tracker.evaluation(evaluation)
        tracker.round(finished)
    assert {event for event, _ in engine.events} == {ANALYTIC_EVENT_TYPE}
    events = [AnalyticsData.from_dxo(from_shareable(data)) for data in engine.data_of(ANALYTIC_EVENT_TYPE)]
    expected = {tag: (value, 2) for tag, value in evaluation_scalars(evaluation, "accuracy")}
    expected |= {tag: (value, 3) for tag, value in of_round.items()}
    assert {event.tag.removeprefix("STAND-IN/"): (event.value, event.step) for event in events} == expected
    assert len(events) == len(expected)
    assert told == [EventType.START_RUN, *[ANALYTIC_EVENT_TYPE] * len(events), EventType.END_RUN]
    for event in events:
        assert event.tag.startswith("STAND-IN/")
        assert (event.data_type, type(event.value)) == (AnalyticsDataType.SCALAR, float)


def test_failing_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(name: str, run: object) -> None:
        raise SettingsError(f"the package {name} cannot be imported.")

    monkeypatch.setattr(tracking, "make_receiver", refuse)
    engine = Engine(tmp_path)
    with Tracker(FLComponent(), run_record(), "mlflow", context_of(engine)) as tracker:
        tracker.round(round_record(1))
    assert "the run goes on without its tracker: the package mlflow cannot be imported." in caplog.text
    assert engine.events
