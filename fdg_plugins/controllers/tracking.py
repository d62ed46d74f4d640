# SPDX-License-Identifier: Apache-2.0
"""Emits the run's metrics as FLARE analytics events; FLARE's receiver in the job writes them for TensorBoard."""

from collections.abc import Iterator

from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsDataType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.apis.utils.analytix_utils import create_analytic_dxo, send_analytic_dxo

from fdg_plugins.record.run_record import AggregationRecord, EvaluationRecord, RoundRecord

Scalar = tuple[str, float]


def round_scalars(finished: RoundRecord) -> Iterator[Scalar]:
    """Yield the tag and value of each metric of one round."""
    yield "round/seconds", finished.seconds
    yield "round/sites", float(len(finished.sites))
    for site, local in finished.local.items():
        if local.epoch_losses:
            yield f"train_loss/{site}", local.epoch_losses[-1]
    if finished.aggregation is not None:
        yield from _aggregation_scalars(finished.aggregation)


def _aggregation_scalars(aggregation: AggregationRecord) -> Iterator[Scalar]:
    for name, value in aggregation:
        tagged = (
            {f"{name}/{site}": number for site, number in value.items()}
            if isinstance(value, dict)
            else {f"server/{name}": value}
        )
        yield from ((tag, number) for tag, number in tagged.items() if number is not None)


def evaluation_scalars(evaluation: EvaluationRecord, score_name: str) -> Iterator[Scalar]:
    """Yield the tag and value of each metric of one evaluation; ``score_name`` is the score that selects models."""
    for site, score in evaluation.sites.items():
        yield from ((f"{score.split}_{name}/{site}", value) for name, value in score.values().items())
        yield f"{score.split}_loss/{site}", score.loss
    for name in ("source_mean", "source_worst", "target"):
        value = getattr(evaluation, name)
        if value is not None:
            yield f"{score_name}/{name}", value


class Tracker:
    """Fires one analytics event per metric on behalf of a component.

    Args:
        component: the component that fires the events.
        score_name: name of the score by which the run's models are compared.
        prefix: prepended to every tag.
    """

    def __init__(self, component: FLComponent, score_name: str, prefix: str = "") -> None:
        self.component = component
        self.score_name = score_name
        self.prefix = prefix

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
