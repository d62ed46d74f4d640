# SPDX-License-Identifier: Apache-2.0
"""The record of a run, ``results.json``: its schema, and the numbers that follow from it.

Rounds count from 1. An evaluation is of the global model *after* a round; ``after_round`` 0 is the initial
model. Scores are those of the run's task (accuracies are fractions), losses means over images, sizes bytes of tensors,
times seconds.
A loss that is not finite is null.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import pydantic

from fdg_plugins.messages import CensusReply, Checked, Evaluation, TrainingLoss
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import TASKS, ScoreKind

SCHEMA_VERSION = 1


def _with_scores(evaluation: Evaluation, write: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
    """Return an evaluation as a record has it: with every score by its name, beside the sums that it follows from."""
    return {**write(evaluation), **evaluation.values()}


# In a record, an evaluation of classification still has its ``accuracy``.
# The lambda has no return type, so that the schema stays that of an evaluation.
Judgement = Annotated[Evaluation, pydantic.WrapSerializer(lambda found, write: _with_scores(found, write))]


class Recorded(Checked):
    """Base of the record's parts; these grow while the run goes on."""

    model_config = pydantic.ConfigDict(frozen=False, extra="forbid", ser_json_inf_nan="null")


class Method(Recorded):
    """The aggregator by class name, its settings in force, and the local objective with all of its own."""

    aggregator: str
    settings: dict[str, Any]
    objective: dict[str, Any] = pydantic.Field(default_factory=lambda: {"name": "erm"})


class InitialWeights(Recorded):
    """Where the initial weights came from: ``imagenet`` with file name and SHA-256, or ``from scratch``."""

    label: str
    file: str | None = None
    sha256: str | None = None


class LocalRecord(Recorded):
    """One site's local training in one round; ``local`` is its own model after it, on its validation split.

    Losses and ``local`` are None where the site withholds them.
    """

    epoch_losses: tuple[TrainingLoss, ...] | None
    local: Judgement | None
    steps: int
    learning_rate: float
    num_samples: int
    seconds: float


class AggregationRecord(Recorded):
    """What the server made of the updates, by site; ``None`` where the method has no such number."""

    weights: dict[str, float]
    coefficients: dict[str, float]
    gamma: dict[str, float] | None = None
    gaps: dict[str, float | None] | None = None
    effective_steps: dict[str, float] | None = None
    training_losses: dict[str, float] | None = None
    update_norms: dict[str, float]
    cosines_with_mean: dict[str, float]
    cosines_with_direction: dict[str, float]
    mean_norm: float
    direction_norm: float
    objective: float | None = None
    duality_gap: float | None = None
    clip_factors: dict[str, float] | None = None

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> "AggregationRecord":
        """Return the record of an aggregator's report, in which lists are in the order of ``sites``."""
        sites = report["sites"]
        values = {name: value for name, value in report.items() if name != "sites"}
        by_site = {k: dict(zip(sites, v, strict=True)) if isinstance(v, list) else v for k, v in values.items()}
        return cls.model_validate(by_site)


class RoundRecord(Recorded):
    """One round. ``drawn`` are the sources that were asked to train, ``sites`` those whose update was used.

    ``failures`` are the sites without a usable answer, with the reason; ``refused_reports`` those whose report beside
    the update was refused. ``bytes_in_files`` is how much of the updates FLARE wrote to files as they arrived.
    ``aggregation`` is None if the model was left as it was; ``reason`` then says why. ``undone``: sites could not train
    on the model that came of it, so that the step was taken back in the next round. In a centralised run, a round is
    the steps before an evaluation, and both are None.
    """

    round: int
    drawn: tuple[str, ...]
    sites: tuple[str, ...]
    failures: dict[str, str]
    refused_reports: dict[str, str] = pydantic.Field(default_factory=dict)
    local: dict[str, LocalRecord]
    aggregation: AggregationRecord | None = None
    reason: str | None = None
    undone: bool = False
    seconds: float
    aggregation_seconds: float
    bytes_down: int
    bytes_up: int
    bytes_in_files: int = 0


class EvaluationRecord(Recorded):
    """The global model after a round: by site, and its score by domain; ``target`` is None if nobody answered.

    ``undone``: of a model that was taken back, which no rule selects.
    """

    after_round: int
    sites: dict[str, Judgement]
    domains: dict[str, float]
    source_mean: float | None
    source_worst: float | None
    target: float | None
    undone: bool = False


class Choice(Recorded):
    """A model that a selection rule chose. Only ``last`` and ``source_validation`` are results: the oracle looks
    at the held-out domain. ``file`` holds the model once the run has finished."""

    rule: Literal["last", "source_validation", "oracle"]
    after_round: int
    file: str | None = None


class RunRecord(Recorded):
    """Everything that ``results.json`` holds.

    ``run`` is the id of the job that started the run; ``resumed_after`` the rounds after which another job went on;
    ``left_out`` the sites that take no further part, with the reason.
    """

    schema_version: int = SCHEMA_VERSION
    run: str = ""
    resumed_after: list[int] = pydantic.Field(default_factory=list)
    left_out: dict[str, str] = pydantic.Field(default_factory=dict)
    status: Literal["running", "finished", "stopped"] = "running"
    stopped_because: str | None = None
    stand_in: bool
    data: str
    started: str
    seconds: float = 0.0
    protocol: Protocol
    method: Method
    initial_weights: InitialWeights
    versions: dict[str, str]
    classes: tuple[str, ...]
    sources: tuple[str, ...]
    held_out: tuple[str, ...]
    census: dict[str, CensusReply]
    rounds: list[RoundRecord] = pydantic.Field(default_factory=list)
    evaluations: list[EvaluationRecord] = pydantic.Field(default_factory=list)
    choices: list[Choice] = pydantic.Field(default_factory=list)

    @property
    def score(self) -> ScoreKind:
        """The score by which the run's models are judged: that of its task."""
        return TASKS.get(self.protocol.task).score

    def add_evaluation(
        self, after_round: int, scores: Mapping[str, Evaluation], expected: Iterable[str] | None = None
    ) -> EvaluationRecord:
        """Append the scores of the global model after a round, with their means over domains.

        The means are None unless all ``expected`` sources (default: every one) judged it.
        """
        domains = domain_scores(scores, {site: reply.domain for site, reply in self.census.items()}, self.score.name)
        sources = [value for domain, value in sorted(domains.items()) if domain != self.protocol.target]
        complete = bool(sources) and all(site in scores for site in (self.sources if expected is None else expected))
        record = EvaluationRecord(
            after_round=after_round,
            sites=dict(sorted(scores.items())),
            domains=domains,
            source_mean=sum(sources) / len(sources) if complete else None,
            source_worst=self.score.worst(sources) if complete else None,
            target=domains.get(self.protocol.target),
        )
        self.evaluations.append(record)
        return record

    def idle_rounds(self) -> int:
        """Return how many rounds at the end, one after the other, left the model as it was."""
        count = 0
        for finished in reversed(self.rounds):
            if finished.aggregation is not None and not finished.undone:
                break
            count += 1
        return count

    def choose(self, files: Mapping[str, str]) -> list[Choice]:
        """Return the choice of each selection rule among the evaluated models, with the file that ``files`` names for
        the rule; the earliest model wins a tie."""
        judged = [one for one in self.evaluations if one.target is not None and not one.undone]
        chosen = {
            "last": next((one for one in reversed(self.evaluations) if not one.undone), None),
            "source_validation": self._selected(),
            "oracle": max(judged, key=lambda evaluation: self.score.goodness(evaluation.target or 0.0), default=None),
        }
        return [
            Choice.model_validate({"rule": rule, "after_round": model.after_round, "file": files.get(rule)})
            for rule, model in chosen.items()
            if model is not None
        ]

    def _selected(self) -> EvaluationRecord | None:
        """Return the model with the best score in the middle of the sources: the mean over their domains, or the
        median over their sites, of an even number the lower one.

        For a domain, or site, that did not judge a model its last known score counts: a site that misses a round
        does not decide it, and one that is gone for good does not end the selection.
        """
        known: dict[str, float] = {}
        centre = statistics.median_low if self.protocol.selection == "median" else mean
        best: tuple[float, EvaluationRecord | None] = (-math.inf, None)
        for evaluation in self.evaluations:
            sources = {} if evaluation.undone else self._source_scores(evaluation)
            known.update(sources)
            if sources and (value := self.score.goodness(centre(list(known.values())))) > best[0]:
                best = (value, evaluation)
        return best[1]

    def _source_scores(self, evaluation: EvaluationRecord) -> dict[str, float]:
        """Return the scores by which a model is selected: of domains for the mean, of sites for the median."""
        if self.protocol.selection == "median":
            return {
                site: evaluation.sites[site].value(self.score.name) for site in self.sources if site in evaluation.sites
            }
        return {domain: value for domain, value in evaluation.domains.items() if domain != self.protocol.target}


def mean(values: Sequence[float]) -> float:
    """Return the mean of one or more numbers."""
    return sum(values) / len(values)


def domain_scores(scores: Mapping[str, Evaluation], domains: Mapping[str, str], name: str) -> dict[str, float]:
    """Return the score called ``name`` per domain, pooled over the samples of the sites that hold it."""
    total: dict[str, float] = {}
    count: dict[str, int] = {}
    for site, score in sorted(scores.items()):
        domain, one = domains[site], score.sums[name]
        total[domain] = total.get(domain, 0.0) + one.sum
        count[domain] = count.get(domain, 0) + one.count
    return {domain: total[domain] / count[domain] for domain in sorted(count)}
