# SPDX-License-Identifier: Apache-2.0
"""What an operator watches of a run: how long rounds take, which sites take part, what was refused, what was sent."""

from collections.abc import Iterator
from types import MappingProxyType

from fdg_plugins.flare.metrics import Metric, publish
from fdg_plugins.record.method_settings import federated_name
from fdg_plugins.record.run_record import AggregationRecord, EvaluationRecord, RoundRecord, RunRecord

SERVER_METRICS = MappingProxyType(
    {
        "fdg_round": "the last finished round",
        "fdg_rounds": "the rounds of the run",
        "fdg_round_seconds": "seconds of the last round",
        "fdg_aggregation_seconds": "seconds in which the server combined its updates",
        "fdg_updates_used": "usable updates, also of rounds that left the model as it was",
        "fdg_updates_missing": "sites drawn without a usable update: lost, late, failed or refused",
        "fdg_reports_refused": "reports of methods that were refused",
        "fdg_model_unchanged": "rounds that left the model as it was",
        "fdg_bytes_down": "bytes of tensors sent to sites in the rounds",
        "fdg_bytes_up": "bytes of tensors received from sites in the rounds, refused ones among them",
        "fdg_site_takes_part": "1 if a site's update was usable in the last round for which it was drawn, else 0",
        "fdg_site_left_out": "1 if a site takes no further part",
        "fdg_gap": "gap of a site, as the method weights by it",
        "fdg_duality_gap": "certified distance to the optimum of the matching (FedOMG)",
        "fdg_source_score": "mean score of the model on the sources' validation images",
        "fdg_target_score": "score of the model on the held-out domain",
    }
)
"""The metrics that a server publishes by name, with what they mean."""

SITE_METRICS = MappingProxyType(
    {
        "fdg_epsilon_spent": "epsilon of all the site's releases so far, from its ledger",
        "fdg_epsilon_left": "what is left of the site's budget",
    }
)
"""The metrics that a site with differential privacy publishes."""

COUNTERS = frozenset(
    (
        "fdg_updates_used",
        "fdg_updates_missing",
        "fdg_reports_refused",
        "fdg_model_unchanged",
        "fdg_bytes_down",
        "fdg_bytes_up",
    )
)


def publish_round(record: RunRecord, finished: RoundRecord, evaluation: EvaluationRecord) -> None:
    """Publish a finished round and the evaluation of the model that was sent in it."""
    publish(round_metrics(record, finished), _tags(record))
    publish_evaluation(record, evaluation)


def publish_evaluation(record: RunRecord, evaluation: EvaluationRecord) -> None:
    """Publish the scores of an evaluation."""
    scores = {"fdg_source_score": evaluation.source_mean, "fdg_target_score": evaluation.target}
    publish((_metric(name, value) for name, value in scores.items() if value is not None), _tags(record))


def round_metrics(record: RunRecord, finished: RoundRecord) -> Iterator[Metric]:
    """Yield the metrics of a finished round."""
    yield _metric("fdg_round", finished.round)
    yield _metric("fdg_rounds", record.protocol.rounds)
    yield _metric("fdg_round_seconds", finished.seconds)
    yield _metric("fdg_aggregation_seconds", finished.aggregation_seconds)
    yield _metric("fdg_updates_used", len(finished.sites))
    yield _metric("fdg_updates_missing", len(set(finished.drawn) - set(finished.sites)))
    yield _metric("fdg_reports_refused", len(finished.refused_reports))
    yield _metric("fdg_model_unchanged", int(finished.aggregation is None))
    yield _metric("fdg_bytes_down", finished.bytes_down)
    yield _metric("fdg_bytes_up", finished.bytes_up)
    for site in finished.drawn:
        yield _metric("fdg_site_takes_part", int(site in finished.sites), site)
    for site in record.left_out:
        yield _metric("fdg_site_left_out", 1, site)
    if finished.aggregation is not None:
        yield from _aggregation_metrics(finished.aggregation)


def _aggregation_metrics(aggregation: AggregationRecord) -> Iterator[Metric]:
    for site, gap in (aggregation.gaps or {}).items():
        if gap is not None:
            yield _metric("fdg_gap", gap, site)
    if aggregation.duality_gap is not None:
        yield _metric("fdg_duality_gap", aggregation.duality_gap)


def _metric(name: str, value: float, site: str | None = None) -> Metric:
    tags = {} if site is None else {"site": site}
    return Metric(name, "counter" if name in COUNTERS else "gauge", float(value), tags)


def _tags(record: RunRecord) -> dict[str, str]:
    """Return the labels of a run."""
    return {
        "run": record.run,
        "method": federated_name(record.method),
        "dataset": f"{record.protocol.dataset}{'-STAND-IN' if record.stand_in else ''}",
        "target": record.protocol.target,
    }
