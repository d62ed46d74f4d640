# SPDX-License-Identifier: Apache-2.0
"""Every number of a run becomes one analytics event, with its tag, its step and the mark of the stand-in."""

from pathlib import Path

import pytest
from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsData, AnalyticsDataType
from nvflare.apis.dxo import from_shareable

from fdg_plugins.controllers import tracking
from fdg_plugins.controllers.tracking import Tracker, evaluation_scalars, round_scalars
from fdg_plugins.errors import SettingsError
from fdg_plugins.record.run_record import EvaluationRecord, RoundRecord
from tests.controllers.federation_stubs import (
    Engine,
    Reporter,
    context_of,
    round_record,
    run_record,
    scores,
)


def judged() -> EvaluationRecord:
    return run_record().add_evaluation(2, scores(0.25, 0.75, 0.75, 0.5))


def sent(folder: Path, record: RoundRecord | EvaluationRecord, prefix: str = "") -> list[AnalyticsData]:
    engine = Engine(folder)
    tracker = Tracker(Reporter(), run_record(stand_in=bool(prefix)), None, context_of(engine))
    if isinstance(record, RoundRecord):
        tracker.round(record, context_of(engine))
    else:
        tracker.evaluation(record, context_of(engine))
    assert {event for event, _ in engine.events} == {ANALYTIC_EVENT_TYPE}
    return [AnalyticsData.from_dxo(from_shareable(data)) for data in engine.data_of(ANALYTIC_EVENT_TYPE)]


def test_a_round_gives_its_losses_times_and_what_the_server_made_of_the_updates() -> None:
    scalars = dict(round_scalars(round_record(3)))
    assert scalars["round/seconds"] == 10.0
    assert scalars["round/sites"] == 2.0
    assert (scalars["train_loss/cartoon"], scalars["train_loss/photo-1"]) == (1.0, 1.5)
    assert (scalars["weights/cartoon"], scalars["update_norms/photo-1"]) == (0.25, 4.0)
    assert (scalars["server/mean_norm"], scalars["server/direction_norm"]) == (2.0, 2.5)
    assert (scalars["server/idle"], scalars["server/cancelled"]) == (0.0, False)
    assert all(isinstance(value, int | float) for value in scalars.values())
    assert not any(tag.startswith(("gamma", "server/gamma", "server/objective")) for tag in scalars)


def test_numbers_are_sent_as_events_at_their_round_with_the_mark_of_the_stand_in(tmp_path: Path) -> None:
    for record, step, expected in (
        (judged(), 2, dict(evaluation_scalars(judged(), "accuracy"))),
        (round_record(3), 3, dict(round_scalars(round_record(3)))),
    ):
        events = sent(tmp_path, record, "STAND-IN/")
        assert {event.tag.removeprefix("STAND-IN/"): event.value for event in events} == expected
        assert len(events) == len(expected)
        for event in events:
            assert event.tag.startswith("STAND-IN/")
            assert (event.data_type, event.step, type(event.value)) == (AnalyticsDataType.SCALAR, step, float)


def test_a_tracker_that_cannot_be_made_costs_the_run_nothing_but_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str, run: object) -> None:
        raise SettingsError(f"the package {name} cannot be imported.")

    monkeypatch.setattr(tracking, "make_receiver", refuse)
    engine = Engine(tmp_path)
    with Tracker(Reporter(), run_record(), "mlflow", context_of(engine)) as tracker:
        tracker.round(round_record(1), context_of(engine))
    assert "the run goes on without its tracker: the package mlflow cannot be imported." in caplog.text
    assert engine.events
