# SPDX-License-Identifier: Apache-2.0
"""The numbers of a run for those who watch it: FLARE analytics events for TensorBoard, and metrics for operators.

FLARE's receiver in the job writes the events for TensorBoard. A further receiver of FLARE's, for MLflow or Weights &
Biases, gets the same events if the job or the server's operator asks for it (:mod:`fdg_plugins.flare.trackers`).
docs/monitoring.md has what each metric means (:mod:`fdg_plugins.flare.metrics`).
"""

import json
from collections.abc import Iterator
from typing import Any, Literal, Self

from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsDataType
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.apis.utils.analytix_utils import create_analytic_dxo, send_analytic_dxo
from nvflare.app_common.widgets.streaming import AnalyticsReceiver

from fdg_plugins.flare.metrics import Values, publish
from fdg_plugins.flare.trackers import TrackedRun, make_receiver
from fdg_plugins.record.method_settings import federated_name, name_of_run
from fdg_plugins.record.round_record import RoundRecord
from fdg_plugins.record.run_record import EvaluationRecord, RunRecord

Scalar = tuple[str, float]


def round_scalars(finished: RoundRecord) -> Iterator[Scalar]:
    """Yield the tag and value of each metric of one round; of a tuple of sites, how many it names."""
    yield "round/seconds", finished.seconds
    yield "round/sites", float(len(finished.sites))
    for site, local in finished.local.items():
        if local.epoch_losses:
            yield f"train_loss/{site}", local.epoch_losses[-1]
    found: dict[str, Any] = {} if finished.aggregation is None else dict(finished.aggregation)
    for name, value in {**(found.pop("own", None) or {}), **found}.items():
        if isinstance(value, dict):
            numbers = {f"{name}/{site}": number for site, number in value.items()}
        else:
            numbers = {f"server/{name}": len(value) if isinstance(value, tuple) else value}
        yield from ((tag, float(number)) for tag, number in numbers.items() if isinstance(number, int | float))


def evaluation_scalars(evaluation: EvaluationRecord, score_name: str) -> Iterator[Scalar]:
    """Yield the tag and value of each metric of one evaluation; ``score_name`` is the score that selects models."""
    for site, score in evaluation.sites.items():
        yield from ((f"{score.split}_{name}/{site}", value) for name, value in score.values().items())
        yield f"{score.split}_loss/{site}", score.loss
    means = {f"{score_name}/{name}": getattr(evaluation, name) for name in ("source_mean", "source_worst", "target")}
    if (personal := evaluation.personal) is not None:
        for site, score in personal.sites.items():
            yield f"personal_{score_name}/{site}", score.value(score_name)
        for name in ("source_mean", "source_worst", "pooled"):
            means[f"personal_{score_name}/{name}"] = getattr(personal, name)
    yield from ((tag, value) for tag, value in means.items() if value is not None)


def round_counters(finished: RoundRecord) -> Values:
    """Return what an operator adds up over the rounds."""
    return {
        "fdg_updates_used": len(finished.sites),
        "fdg_updates_missing": len(set(finished.drawn) - set(finished.sites)),
        "fdg_reports_refused": len(finished.refused_reports),
        "fdg_model_unchanged": int(finished.aggregation is None),
        "fdg_bytes_down": finished.bytes_down,
        "fdg_bytes_up": finished.bytes_up,
    }


def round_gauges(record: RunRecord, finished: RoundRecord) -> Values:
    """Return what an operator watches of a finished round."""
    aggregation = finished.aggregation
    return {
        "fdg_round": finished.round,
        "fdg_rounds": record.protocol.rounds,
        "fdg_round_seconds": finished.seconds,
        "fdg_aggregation_seconds": finished.aggregation_seconds,
        "fdg_duality_gap": None if aggregation is None else aggregation.duality_gap,
        "fdg_site_takes_part": {site: int(site in finished.sites) for site in finished.drawn},
        "fdg_site_left_out": dict.fromkeys(record.left_out, 1),
        "fdg_gap": None if aggregation is None else aggregation.gaps,
    }


def describe(record: RunRecord) -> TrackedRun:
    """Return the name of a run, the name of its group (its data set), and its protocol and method as plain values."""
    settings = {
        "method": federated_name(record.method),
        **record.protocol.model_dump(mode="json"),
        **{f"server.{name}": value for name, value in record.method.settings.items()},
        "initial_weights": record.initial_weights.label,
        "stand_in": record.stand_in,
        "run": record.run,
        **record.versions,
    }
    plain = {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value, sort_keys=True)
        for name, value in settings.items()
    }
    return TrackedRun(name_of_run(record), f"fdg-{_dataset(record)}", plain)


def _dataset(record: RunRecord) -> str:
    return f"{record.protocol.dataset}{'-STAND-IN' if record.stand_in else ''}"


class Tracker:
    """Fires one analytics event per metric on behalf of a component; a context that begins and ends the run.

    The tags of a run on the stand-in begin with ``STAND-IN/``. ``tracking``: a tracker in addition to TensorBoard.
    """

    def __init__(self, component: FLComponent, record: RunRecord, tracking: str | None, fl_ctx: FLContext) -> None:
        self.component = component
        self._record = record
        self._fl_ctx = fl_ctx
        self._tracking = tracking
        self._receiver: AnalyticsReceiver | None = None

    def __enter__(self) -> Self:
        """Begin the run with the tracker."""
        if self._tracking is not None:
            try:
                self._receiver = make_receiver(self._tracking, describe(self._record))
                self._receiver.handle_event(EventType.START_RUN, self._fl_ctx)
            except Exception as error:  # noqa: BLE001 - a run is worth more than its metrics elsewhere
                self.component.log_warning(self._fl_ctx, f"the run goes on without its tracker: {error}")
        return self

    def __exit__(self, *_: object) -> None:
        """End the run with the tracker."""
        if self._receiver is not None:
            self._receiver.handle_event(EventType.END_RUN, self._fl_ctx)

    def round(self, finished: RoundRecord) -> None:
        """Send a round's metrics at step ``round``."""
        self._send(round_scalars(finished), finished.round)
        self._publish("counter", round_counters(finished))
        self._publish("gauge", round_gauges(self._record, finished))

    def evaluation(self, evaluation: EvaluationRecord) -> None:
        """Send an evaluation's metrics at step ``after_round``."""
        self._send(evaluation_scalars(evaluation, self._record.score.name), evaluation.after_round)
        self._publish("gauge", {"fdg_source_score": evaluation.source_mean, "fdg_target_score": evaluation.target})

    def _publish(self, kind: Literal["gauge", "counter"], values: Values) -> None:
        record = self._record
        tags = {"run": record.run, "method": federated_name(record.method), "dataset": _dataset(record)}
        publish(kind, values, {**tags, "target": record.protocol.target})

    def _send(self, scalars: Iterator[Scalar], step: int) -> None:
        prefix = "STAND-IN/" if self._record.stand_in else ""
        for tag, value in scalars:
            dxo = create_analytic_dxo(prefix + tag, float(value), AnalyticsDataType.SCALAR, global_step=step)
            send_analytic_dxo(self.component, dxo, self._fl_ctx, ANALYTIC_EVENT_TYPE, fire_fed_event=False)
            if self._receiver is not None:
                self._receiver.handle_event(ANALYTIC_EVENT_TYPE, self._fl_ctx)
