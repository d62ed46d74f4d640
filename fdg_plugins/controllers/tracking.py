# SPDX-License-Identifier: Apache-2.0
"""Emits the run's metrics as FLARE analytics events; FLARE's receiver in the job writes them for TensorBoard.

A further receiver of FLARE's, for MLflow or Weights & Biases, gets the same events if the job or the server's operator
asks for it (:mod:`fdg_plugins.flare.trackers`).
"""

import json
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsDataType
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.apis.utils.analytix_utils import create_analytic_dxo, send_analytic_dxo
from nvflare.app_common.widgets.streaming import AnalyticsReceiver

from fdg_plugins.flare.trackers import TrackedRun, make_receiver
from fdg_plugins.record.method_settings import federated_name, name_of_run
from fdg_plugins.record.run_record import EvaluationRecord, RoundRecord, RunRecord

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
    means: dict[str, float | None] = {}
    if (personal := evaluation.personal) is not None:
        for site, score in personal.sites.items():
            yield f"personal_{score_name}/{site}", score.value(score_name)
        for name in ("source_mean", "source_worst", "pooled"):
            means[f"personal_{score_name}/{name}"] = getattr(personal, name)
    for name in ("source_mean", "source_worst", "target"):
        means[f"{score_name}/{name}"] = getattr(evaluation, name)
    yield from ((tag, value) for tag, value in means.items() if value is not None)


def describe(record: RunRecord) -> TrackedRun:
    """Return the name of a run, the name of its group (its data set), and its protocol and method as plain values."""
    method = record.method
    settings = {
        "method": federated_name(method),
        **record.protocol.model_dump(mode="json"),
        **{f"server.{name}": value for name, value in method.settings.items()},
        "initial_weights": record.initial_weights.label,
        "stand_in": record.stand_in,
        "run": record.run,
        **record.versions,
    }
    plain = {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value, sort_keys=True)
        for name, value in settings.items()
    }
    return TrackedRun(
        name_of_run(record), f"fdg-{record.protocol.dataset}{'-STAND-IN' if record.stand_in else ''}", plain
    )


class Tracker:
    """Fires one analytics event per metric on behalf of a component; a context that begins and ends the run.

    Args:
        component: the component that fires the events.
        record: the run's record; the tags of a run on the stand-in begin with ``STAND-IN/``.
        tracking: the name of a tracker in addition to TensorBoard; None: none.
        fl_ctx: the context in which the run begins.
    """

    def __init__(self, component: FLComponent, record: RunRecord, tracking: str | None, fl_ctx: FLContext) -> None:
        self.component = component
        self.score_name = record.score.name
        self.prefix = "STAND-IN/" if record.stand_in else ""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the run with the tracker."""
        if self._receiver is not None:
            self._receiver.handle_event(EventType.END_RUN, self._fl_ctx)

    def round(self, finished: RoundRecord, fl_ctx: FLContext) -> None:
        """Send a round's metrics at step ``round``."""
        self._send(round_scalars(finished), finished.round, fl_ctx)

    def evaluation(self, evaluation: EvaluationRecord, fl_ctx: FLContext) -> None:
        """Send an evaluation's metrics at step ``after_round``."""
        self._send(evaluation_scalars(evaluation, self.score_name), evaluation.after_round, fl_ctx)

    def _send(self, scalars: Iterator[Scalar], step: int, fl_ctx: FLContext) -> None:
        for tag, value in scalars:
            dxo = create_analytic_dxo(
                tag=self.prefix + tag, value=float(value), data_type=AnalyticsDataType.SCALAR, global_step=step
            )
            send_analytic_dxo(self.component, dxo, fl_ctx, ANALYTIC_EVENT_TYPE, fire_fed_event=False)
            if self._receiver is not None:
                self._receiver.handle_event(ANALYTIC_EVENT_TYPE, fl_ctx)
