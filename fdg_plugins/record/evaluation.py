# SPDX-License-Identifier: Apache-2.0
"""The record of an evaluation of finished models, ``evaluation.json``, and its table, with bootstrap intervals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pydantic

from fdg_plugins.core.bootstrap import PAIRED, RIGHT_OR_WRONG, interval_of
from fdg_plugins.messages import ModelScores, ScoreSum
from fdg_plugins.record.run_record import Recorded
from fdg_plugins.record.text import aligned
from fdg_plugins.tasks import TASKS, Counts, ScoreKind, Task
from fdg_plugins.tasks.counts import Bounded

POOLED = "all sites"


class EvaluatedModel(Recorded):
    """A model: the SHA-256 of its file, its method, the data and the domains on which it was trained."""

    name: str
    sha256: str
    method: str
    trained_on: str
    sources: tuple[str, ...]


class SiteScores(Recorded):
    """What one site counted of the models by name; ``failures``: why it did not evaluate one."""

    domain: str
    images: int
    models: dict[str, ModelScores] = pydantic.Field(default_factory=dict)
    failures: dict[str, str] = pydantic.Field(default_factory=dict)


class EvaluationResult(Recorded):
    """The content of ``evaluation.json``; ``left_out``: the sites that evaluated none of the models, with the reason.

    No selection rule reads it.
    """

    schema_version: int = 1
    job: str
    started: str
    task: str
    scores: tuple[str, ...]
    data: str
    stand_in: bool
    classes: tuple[str, ...]
    models: tuple[EvaluatedModel, ...]
    sites: dict[str, SiteScores]
    left_out: dict[str, str]
    versions: dict[str, str]

    @property
    def learned(self) -> Task:
        """The task, with the scores that are computed from counts."""
        return TASKS.get(self.task).asked(self.scores)

    @property
    def score(self) -> ScoreKind:
        """The score by which models are compared."""
        return self.learned.score


class Value(NamedTuple):
    """A score, or a difference of two, and its 95 % interval, None if it is not known."""

    value: float
    interval: tuple[float, float] | None

    def text(self, kind: ScoreKind, *, sign: str = "") -> str:
        """Return it for display: ``81.2 [79.0, 83.3]``."""
        shown = [f"{kind.factor * each:{sign}.1f}" for each in (self.value, *(self.interval or ()))]
        return f"{shown[0]} [{', '.join(shown[1:])}]" if self.interval else shown[0]


class Row(NamedTuple):
    """One site, or all of them together: the value of each model, and of each but the first the difference to it.

    A model that was not evaluated there, or not at all of the sites, has none. ``counted``: of each model, the scores
    from counts, in which histograms lose where in a bin a probability is.
    """

    site: str
    domain: str
    images: int
    values: Mapping[str, Value]
    differences: Mapping[str, Value]
    counted: Mapping[str, Mapping[str, Bounded]]

    @property
    def label(self) -> str:
        """The site, with its domain if that has another name."""
        return self.site if self.domain in ("", self.site) else f"{self.site} ({self.domain})"


def rows_of(result: EvaluationResult) -> Iterator[Row]:
    """Yield a row for each site and, if there are several, one for all of them."""
    by_image = result.learned.one_class_per_image
    for name, one in result.sites.items():
        yield _row(result, name, one.domain, [one], by_image=by_image)
    if len(result.sites) > 1:
        yield _row(result, POOLED, "", [*result.sites.values()], by_image=by_image)


def _row(result: EvaluationResult, name: str, domain: str, sites: Sequence[SiteScores], *, by_image: bool) -> Row:
    first, *others = (model.name for model in result.models)
    values = {}
    for model in (first, *others):
        if all(model in one.models for one in sites):
            values[model] = _value([one.models[model].sums[result.score.name] for one in sites], by_image=by_image)
    pairs = {}
    for other in others if by_image and first in values else ():
        if other in values:
            pairs[other] = [one.models[other].pairs["0"] for one in sites]
    differences = {other: _difference(counts) for other, counts in pairs.items()}
    counted = {model: result.learned.counted_values(_summed(result, model, sites)) for model in values}
    return Row(name, domain, sum(one.images for one in sites), values, differences, counted)


def _summed(result: EvaluationResult, model: str, sites: Sequence[SiteScores]) -> Counts:
    """Return the counts of a model, added up over sites that have evaluated it."""
    read, classes = result.learned.read_counts, len(result.classes)
    each = [read(one.models[model].counts, classes) for one in sites]
    return {name: sum((one[name] for one in each[1:]), each[0][name]) for name in result.learned.reads}


def _value(sums: Sequence[ScoreSum], *, by_image: bool) -> Value:
    value = sum(one.sum for one in sums) / sum(one.count for one in sums)
    counts = [(round(one.sum), one.count - round(one.sum)) for one in sums]
    return Value(value, interval_of(counts, RIGHT_OR_WRONG) if by_image else None)


def _difference(pairs: Sequence[Sequence[int]]) -> Value:
    """Return the later model's score minus the first one's, from their paired counts at the sites."""
    gained = sum(later - first for _, first, later, _ in pairs)
    return Value(gained / sum(map(sum, pairs)), interval_of(pairs, PAIRED))


def evaluation_table(result: EvaluationResult) -> str:
    """Return the tables for a terminal: scores and differences, and below them the scores from counts."""
    names = [model.name for model in result.models]
    first, *others = names
    rows = list(rows_of(result))
    table = [["site", "images", *names, *(f"{other} - {first}" for other in others)]]
    for row in rows:
        differences = {other: one.text(result.score, sign="+") for other, one in row.differences.items()}
        cells = {name: one.text(result.score) for name, one in row.values.items()}
        known = [*(cells.get(name, "-") for name in names), *(differences.get(name, "-") for name in others)]
        table.append([row.label, f"{row.images:,}", *known])
    unit = " in percent" if result.score.percent else ""
    lines = [f"{result.score.title}{unit} on {result.data}, with 95 % bootstrap intervals", *aligned(table)]
    if kinds := result.learned.summary_kinds:
        below = [["site, model", *(kind.title for kind in kinds)]]
        for row in rows:
            for name, found in row.counted.items():
                values = {kind.name: found[kind.name].value for kind in kinds if kind.name in found}
                below.append([f"{row.label}, {name}", *(kind.text(values.get(kind.name)) for kind in kinds)])
        lines += ["", *aligned(below)]
    return "\n".join([*lines, *_notes(result)])


def _notes(result: EvaluationResult) -> Iterator[str]:
    """Yield what a reader of the tables should know."""
    *_, last = rows_of(result)
    for model in list(last.values)[:1]:
        counts = _summed(result, model, [*result.sites.values()])
        if remarks := result.learned.remarks_on_counts(counts, result.classes):
            yield f"{last.label}, {model}: {'; '.join(remarks)}."
    yield from (f"not evaluated: {site}: {reason}" for site, reason in result.left_out.items())
    for site, one in result.sites.items():
        yield from (f"not evaluated: {site}, {model}: {reason}" for model, reason in one.failures.items())
        if few := sorted({number for scores in one.models.values() for number in scores.withheld}):
            named = ", ".join(result.classes[number] for number in few)
            yield f"{site}: without the scores by class of {named}, of which it lets no histogram leave."
