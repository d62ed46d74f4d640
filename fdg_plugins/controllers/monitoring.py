# SPDX-License-Identifier: Apache-2.0
"""What an operator watches of a run: how long rounds take, which sites take part, what was refused, what was sent.

docs/monitoring.md has what each metric means.
"""

from collections.abc import Iterator, Mapping

from fdg_plugins.flare.metrics import Metric, publish
from fdg_plugins.record.method_settings import federated_name
from fdg_plugins.record.run_record import EvaluationRecord, RoundRecord, RunRecord


def publish_round(record: RunRecord, finished: RoundRecord, evaluation: EvaluationRecord) -> None:
    """Publish a finished round and the evaluation of the model that was sent in it."""
    publish(round_metrics(record, finished), _tags(record))
    publish_evaluation(record, evaluation)


def publish_evaluation(record: RunRecord, evaluation: EvaluationRecord) -> None:
    """Publish the scores of an evaluation."""
    scores = {"fdg_source_score": evaluation.source_mean, "fdg_target_score": evaluation.target}
    publish((Metric(name, "gauge", value) for name, value in scores.items() if value is not None), _tags(record))


def round_metrics(record: RunRecord, finished: RoundRecord) -> Iterator[Metric]:
    """Yield the metrics of a finished round."""
    aggregation = finished.aggregation
    counters = {
        "fdg_updates_used": len(finished.sites),
        "fdg_updates_missing": len(set(finished.drawn) - set(finished.sites)),
        "fdg_reports_refused": len(finished.refused_reports),
        "fdg_model_unchanged": int(finished.aggregation is None),
        "fdg_bytes_down": finished.bytes_down,
        "fdg_bytes_up": finished.bytes_up,
    }
    gauges = {
        "fdg_round": finished.round,
        "fdg_rounds": record.protocol.rounds,
        "fdg_round_seconds": finished.seconds,
        "fdg_aggregation_seconds": finished.aggregation_seconds,
        "fdg_duality_gap": None if aggregation is None else aggregation.duality_gap,
    }
    sites: dict[str, Mapping[str, float | None]] = {
        "fdg_site_takes_part": {site: int(site in finished.sites) for site in finished.drawn},
        "fdg_site_left_out": dict.fromkeys(record.left_out, 1),
        "fdg_gap": (None if aggregation is None else aggregation.gaps) or {},
    }
    yield from (Metric(name, "counter", float(value)) for name, value in counters.items())
    yield from (Metric(name, "gauge", float(value)) for name, value in gauges.items() if value is not None)
    for name, values in sites.items():
        yield from (
            Metric(name, "gauge", float(one), {"site": site}) for site, one in values.items() if one is not None
        )


def _tags(record: RunRecord) -> dict[str, str]:
    """Return the labels of a run."""
    return {
        "run": record.run,
        "method": federated_name(record.method),
        "dataset": f"{record.protocol.dataset}{'-STAND-IN' if record.stand_in else ''}",
        "target": record.protocol.target,
    }
