# SPDX-License-Identifier: Apache-2.0
"""Every number of a run becomes one analytics event, with its tag, its step and the mark of the stand-in."""

from pathlib import Path

import pytest
from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsData, AnalyticsDataType
from nvflare.apis.dxo import from_shareable
from nvflare.apis.fl_component import FLComponent

from fdg_plugins.controllers import tracking
from fdg_plugins.controllers.tracking import Tracker, evaluation_scalars, round_scalars
from fdg_plugins.errors import SettingsError
from tests.controllers.federation_stubs import Engine, context_of, round_record, run_record, scores


def test_numbers_are_sent_as_events_at_their_round_with_the_mark_of_the_stand_in(tmp_path: Path) -> None:
    evaluation, finished = run_record().add_evaluation(2, scores(0.25, 0.75, 0.75, 0.5)), round_record(3)
    of_round = dict(round_scalars(finished))
    assert (of_round["round/sites"], of_round["train_loss/photo-1"], of_round["server/idle"]) == (2.0, 1.5, 0.0)
    assert (of_round["weights/cartoon"], of_round["server/direction_norm"]) == (0.25, 2.5)
    engine = Engine(tmp_path)
    tracker = Tracker(FLComponent(), run_record(stand_in=True), None, context_of(engine))
    tracker.evaluation(evaluation)
    tracker.round(finished)
    assert {event for event, _ in engine.events} == {ANALYTIC_EVENT_TYPE}
    events = [AnalyticsData.from_dxo(from_shareable(data)) for data in engine.data_of(ANALYTIC_EVENT_TYPE)]
    expected = {tag: (value, 2) for tag, value in evaluation_scalars(evaluation, "accuracy")}
    expected |= {tag: (value, 3) for tag, value in of_round.items()}
    assert {event.tag.removeprefix("STAND-IN/"): (event.value, event.step) for event in events} == expected
    assert len(events) == len(expected)
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
