# SPDX-License-Identifier: Apache-2.0
"""The record of a run, ``results.json``: its schema, and the values derived from it.

Rounds are counted from 1. An evaluation is of the global model *after* a round; ``after_round`` 0 is the initial model.
Scores are those of the run's task (accuracies are fractions in [0, 1]), losses are means over images, sizes are bytes
of tensors, times are seconds. A loss that is not finite is null.
"""

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
import pydantic

from fdg_plugins.messages import CensusReply, Evaluation, ModelScores
from fdg_plugins.models import InitialWeights
from fdg_plugins.record.round_record import Judgement, Method, Recorded, RoundRecord
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import Counts, ScoreKind, SumAndCount, Task

SCHEMA_VERSION = 1

Scores = Mapping[str, Evaluation]


class PersonalScores(Recorded):
    """The scores of the sites' own models beside one global model, by site and by domain, on the validation splits.

    ``pooled``: over the samples of all these sites together.
    """

    sites: dict[str, Judgement]
    domains: dict[str, float]
    source_mean: float | None
    source_worst: float | None
    pooled: float


class EvaluationRecord(Recorded):
    """The evaluation of the global model after a round, by site, and its score by domain.

    ``target`` is None unless all held-out sites answered. ``undone``: the model was withdrawn, so no rule selects it.
    ``derived``: by name and domain, the scores that follow from sums over the domain's sites; not written if the task
    has none. ``personal``: the scores of the sites' own models, not written under a method without them. No held-out
    site has one, and no rule selects by them. ``own``: if each site trained alone, the scores of its model at every
    site, by both; ``sites`` has those at the site itself, and at a held-out one the mean of all models.
    """

    after_round: int
    sites: dict[str, Judgement]
    domains: dict[str, float]
    source_mean: float | None
    source_worst: float | None
    target: float | None
    undone: bool = False
    derived: dict[str, dict[str, float]] = pydantic.Field(default_factory=dict)
    personal: PersonalScores | None = None
    own: dict[str, dict[str, Judgement]] = pydantic.Field(default_factory=dict)


_ONLY_IF_ANY = ("derived", "personal", "own")
Evaluated = Annotated[
    EvaluationRecord,
    pydantic.WrapSerializer(
        lambda found, write: {key: value for key, value in write(found).items() if value or key not in _ONLY_IF_ANY}
    ),
]


class Choice(Recorded):
    """A model chosen by a selection rule. Only ``last`` and ``source_validation`` are results, because the oracle uses
    the held-out domain. ``file`` holds the model once the run has finished."""

    rule: Literal["last", "source_validation", "oracle"]
    after_round: int
    file: str | None = None


@dataclass
class Selection:
    """How far the choice by source validation has come, so that a round costs no more the later it is."""

    among: list[EvaluationRecord] = field(default_factory=list)
    known: Scores = field(default_factory=dict)  # the last evaluation of each source site
    best: EvaluationRecord | None = None
    of_best: Scores = field(default_factory=dict)  # what was known when it was evaluated


class RunRecord(Recorded):
    """The content of ``results.json``.

    ``run`` is the id of the job that started the run; ``resumed_after`` lists the rounds after which another job
    resumed it, and ``resumed_with``, in the same order and by participant (the server is ``server``), the packages and
    plug-in files that then had another version than the run began with, and ``device``, ``compiled`` and ``threads``
    of a site if they were others; ``left_out`` maps each site that takes no further part to the reason.
    """

    schema_version: int = SCHEMA_VERSION
    run: str = ""
    resumed_after: list[int] = pydantic.Field(default_factory=list)
    resumed_with: list[dict[str, dict[str, str]]] = pydantic.Field(default_factory=list)
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
    evaluations: list[Evaluated] = pydantic.Field(default_factory=list)
    choices: list[Choice] = pydantic.Field(default_factory=list)

    def after(self, rounds: int) -> Self:
        """Return the record of a run that ended after ``rounds`` of its rounds, with the models chosen up to there."""
        cut = self.model_copy(update={"status": "finished", "stopped_because": None})
        cut.protocol = self.protocol.model_copy(update={"rounds": rounds})
        cut.rounds = [one for one in self.rounds if one.round <= rounds]
        cut.evaluations = [one for one in self.evaluations if one.after_round <= rounds]
        cut.choices = cut.choose({})
        return cut

    def of_site(self, site: str) -> Self:
        """Return the record of one site that trained alone: its models, chosen on its own validation split."""
        alone = self.model_copy(update={"sources": (site,), "evaluations": [], "choices": []})
        for one in self.evaluations:
            alone.add_evaluation(one.after_round, {at: one.own[site][at] for at in (site, *self.held_out)})
        alone.choices = alone.choose({})
        return alone

    @cached_property
    def alone(self) -> list[Self]:
        """The finished record by site, if each trained alone; else none."""
        return [self.of_site(site) for site in self.sources if self.evaluations and self.evaluations[0].own]

    @property
    def score(self) -> ScoreKind:
        """The score by which the run's models are compared, given by its task."""
        return self.task.score

    @property
    def task(self) -> Task:
        """What the run learns."""
        return self.protocol.learned

    @property
    def selecting(self) -> ScoreKind:
        """The score by which source validation, and the oracle, select a model."""
        named = (kind for kind in self.task.summary_kinds if kind.name == self.protocol.selected_by)
        return next(named, self.score)

    def add_evaluation(
        self,
        after_round: int,
        scores: Mapping[str, Evaluation],
        expected: Iterable[str] | None = None,
        personal: Mapping[str, Evaluation] | None = None,
        own: Mapping[str, Mapping[str, Evaluation]] | None = None,
    ) -> EvaluationRecord:
        """Append and return the scores of the global model after a round, with their summaries over source domains.

        The mean and the worst score are None unless all ``expected`` sources (default: all) evaluated the model.
        ``personal``: the scores of the sites' own models, which are summarised likewise. ``own``: as in the record.
        """
        evaluators = self.sources if expected is None else tuple(expected)
        of_sites = None
        if personal:
            totals = [found[self.score.name] for found in self.sums_by_domain(personal).values()]
            pooled = sum(total for total, _ in totals) / sum(count for _, count in totals)
            of_sites = PersonalScores(**self._summary(personal, evaluators), pooled=pooled)
        summary = self._summary(scores, evaluators)
        record = EvaluationRecord(
            after_round=after_round,
            **summary,
            target=summary["domains"].get(self.protocol.target),
            derived=self.derived_scores(scores),
            personal=of_sites,
            own={site: dict(found) for site, found in (own or {}).items()},
        )
        self.evaluations.append(record)
        return record

    def _summary(self, scores: Mapping[str, Evaluation], evaluators: Iterable[str]) -> dict[str, Any]:
        domains = self._domain_scores(scores)
        sources = [value for domain, value in sorted(domains.items()) if domain != self.protocol.target]
        complete = bool(sources) and all(site in scores for site in evaluators)
        worst = self.score.worst(sources) if complete else None
        summary = {"source_mean": mean(sources) if complete else None, "source_worst": worst}
        return {"sites": dict(sorted(scores.items())), "domains": domains, **summary}

    def sums_by_domain(self, scores: Mapping[str, Evaluation]) -> dict[str, dict[str, SumAndCount]]:
        """Return each score of each domain, pooled over the samples of its sites, as a sum and a count.

        The held-out domain has none unless all of its sites evaluated the model: a part of it is another domain.
        """
        return {domain: pooled_sums(found) for domain, found in self._by_domain(scores).items()}

    def counts_by_domain(self, scores: Mapping[str, Evaluation]) -> dict[str, Counts]:
        """Return the counts of each domain, pooled over its sites; of the held-out domain as in `sums_by_domain`."""
        found: dict[str, Counts] = {}
        for domain, evaluations in self._by_domain(scores).items():
            each = [self.task.read_counts(one.counts, len(self.classes)) for one in evaluations if one.counts]
            if each:
                found[domain] = {name: np.sum([one[name] for one in each], axis=0) for name in each[0]}
        return found

    def _by_domain(self, scores: Mapping[str, Evaluation]) -> dict[str, list[Evaluation]]:
        """Return the evaluations of each domain, in the order of the names of its sites."""
        found: dict[str, list[Evaluation]] = {}
        is_whole = all(site in scores for site in self.held_out)
        for site in sorted(scores, key=lambda site: (self.census[site].domain, site)):
            if is_whole or site not in self.held_out:
                found.setdefault(self.census[site].domain, []).append(scores[site])
        return found

    def _domain_scores(self, scores: Mapping[str, Evaluation]) -> dict[str, float]:
        primary = {domain: found[self.score.name] for domain, found in self.sums_by_domain(scores).items()}
        return {domain: total / count for domain, (total, count) in primary.items()}

    def derived_scores(self, scores: Mapping[str, Evaluation]) -> dict[str, dict[str, float]]:
        """Return what the task derives from each domain's sums, and the scores asked for, by name and domain."""
        found: dict[str, dict[str, float]] = {}
        counts = self.counts_by_domain(scores)
        for domain, sums in self.sums_by_domain(scores).items():
            for name, score in self.task.summary(sums, counts.get(domain, {})).items():
                if name != self.score.name:
                    found.setdefault(name, {})[domain] = score.value
        return found

    @property
    def standing(self) -> list[EvaluationRecord]:
        """The evaluations of models that were not undone."""
        return [evaluation for evaluation in self.evaluations if not evaluation.undone]

    def description_of_model(self, after_round: int) -> dict[str, str]:
        """Return what the file of a model after a round says about it."""
        return {
            "model": self.protocol.model,
            "classes": json.dumps(self.classes),
            "image_size": str(self.protocol.image_size),
            "dataset": self.data,
            "target": self.protocol.target,
            "after_round": str(after_round),
            "initial_weights": self.initial_weights.label,
        }

    def idle_rounds(self) -> list[RoundRecord]:
        """Return the rounds that left the model unchanged, or were undone."""
        return [one for one in self.rounds if one.is_idle]

    def choose(self, files: Mapping[str, str]) -> list[Choice]:
        """Return each selection rule's choice among the evaluated models, with the rule's file in ``files``.

        The earliest model wins a tie.
        """
        standing, goodness = self.standing, self.selecting.goodness
        scores = [(score, one) for score, one in zip(self._on_target(), standing, strict=True) if score is not None]
        _, best = max(scores, key=lambda pair: goodness(pair[0]), default=(0.0, None))
        chosen = {"last": next(reversed(standing), None), "source_validation": self._selected(), "oracle": best}
        return [
            Choice.model_validate({"rule": rule, "after_round": model.after_round, "file": files.get(rule)})
            for rule, model in chosen.items()
            if model is not None
        ]

    def _on_target(self) -> list[float | None]:
        """Return the selecting score of each standing model on the held-out domain."""
        if self.selecting == self.score:
            return [one.target for one in self.standing]
        name, target = self.selecting.name, self.protocol.target
        return [one.derived.get(name, {}).get(target) for one in self.standing]

    @cached_property
    def _selection(self) -> Selection:
        return Selection()

    def _selected(self) -> EvaluationRecord | None:
        """Return the model that no later one beats, the earliest of equal ones.

        A model beats the best before it by its central score over the sites of which both have one: before all have
        been drawn for a round, scores would be over different sites. A single answer decides nothing.
        """
        standing, last = self.standing, self._selection
        if last.among != standing[: len(last.among)]:  # a model was undone
            del self._selection
            last = self._selection
        better = self.selecting.goodness
        for evaluation, known in self._known_scores(standing[len(last.among) :], last.known):
            # Nothing that is known is forgotten, so the later model has a score of each site of the best one.
            shared = {site: known[site] for site in last.of_best}
            if last.best is None or better(self.central_score(shared)) > better(self.central_score(last.of_best)):
                last.best, last.of_best = evaluation, known
            last.known = known
        last.among = standing
        return last.best

    def central_score(self, scores: Mapping[str, Evaluation]) -> float:
        """Return the mean over the domains of the sites that gave these scores, or their median over the sites.

        Without a value, as of a class that no site has, a model is the worst that there is.
        """
        by_site = self.protocol.selection == "median"
        if self.selecting == self.score:
            if by_site:
                return statistics.median_low(one.value(self.score.name) for one in scores.values())
            return mean(list(self._domain_scores(scores).values()))
        groups = [{site: one} for site, one in scores.items()] if by_site else [scores]
        derived = [self.derived_scores(group).get(self.selecting.name, {}) for group in groups]
        values = [value for group in derived for value in group.values()] or [self.selecting.least]
        return statistics.median_low(values) if by_site else mean(values)

    def source_score(self, after_round: int) -> float | None:
        """Return the central score of the model after a round, over all that is known then; None if it has none."""
        found = self._known_scores(self.standing, {})
        known = (known for one, known in found if one.after_round == after_round)
        return next(map(self.central_score, known), None)

    def _known_scores(
        self, evaluations: Iterable[EvaluationRecord], known: Scores
    ) -> Iterator[tuple[EvaluationRecord, Scores]]:
        """Yield each model that a source evaluated, with the evaluation of each source site; ``known``: those before.

        For a site that did not evaluate a model, its last known evaluation counts. A site that misses a round therefore
        does not decide the selection, and a site that left for good does not end it.
        """
        for evaluation in evaluations:
            if answered := {site: evaluation.sites[site] for site in self.sources if site in evaluation.sites}:
                known = {**known, **answered}
                yield evaluation, known


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one number."""
    return sum(values) / len(values)


def pooled_sums(scores: Iterable[Evaluation | ModelScores]) -> dict[str, SumAndCount]:
    """Return each score as a sum and a count over all samples of several sites."""
    found: dict[str, SumAndCount] = {}
    for name, one in ((name, one) for score in scores for name, one in score.sums.items()):
        total, count = found.get(name, (0.0, 0))
        found[name] = (total + one.sum, count + one.count)
    return found
