# SPDX-License-Identifier: Apache-2.0
"""The record of an evaluation of finished models, ``evaluation.json``, and its table, with bootstrap intervals."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pydantic

from fdg_plugins.core.bootstrap import PAIRED, RIGHT_OR_WRONG, interval_of
from fdg_plugins.messages import ModelScores
from fdg_plugins.record.round_record import Recorded
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


def rows_of(result: EvaluationResult) -> list[Row]:
    """Return a row for each site and, if there are several, one for all of them."""
    groups = [(name, one.domain, [one]) for name, one in result.sites.items()]
    groups += [(POOLED, "", [*result.sites.values()])] if len(groups) > 1 else []
    return [_row(result, *group) for group in groups]


def _row(result: EvaluationResult, name: str, domain: str, sites: Sequence[SiteScores]) -> Row:
    task, first = result.learned, result.models[0].name
    evaluated = [one.name for one in result.models if all(one.name in site.models for site in sites)]
    values, differences, counted = {}, {}, {}
    for model in evaluated:
        scores = [site.models[model] for site in sites]
        right = [(one.sums[task.score.name].sum, one.sums[task.score.name].count) for one in scores]
        total, samples = (sum(each) for each in zip(*right, strict=True))
        outcomes = [(round(each), count - round(each)) for each, count in right]
        known = task.one_class_per_image
        values[model] = Value(total / samples, interval_of(outcomes, RIGHT_OR_WRONG) if known else None)
        if known and model != first and first in evaluated:
            pairs = [one.pairs["0"] for one in scores]
            gained = sum(later - earlier for _, earlier, later, _ in pairs)
            differences[model] = Value(gained / samples, interval_of(pairs, PAIRED))
        counted[model] = task.counted_values(_summed(result, scores))
    return Row(name, domain, sum(site.images for site in sites), values, differences, counted)


def _summed(result: EvaluationResult, scores: Iterable[ModelScores]) -> Counts:
    """Return a model's counts, added up over sites."""
    each = [result.learned.read_counts(one.counts, len(result.classes)) for one in scores]
    return {name: np.sum([one[name] for one in each], axis=0) for name in result.learned.reads}


def tables_of(result: EvaluationResult) -> list[tuple[str, list[list[str]]]]:
    """Return captions and rows, the first of which is the head: of scores and differences, and scores from counts."""
    score, kinds, rows = result.score, result.learned.summary_kinds, rows_of(result)
    first, *others = names = [model.name for model in result.models]
    table = [["site", "images", *names, *(f"{other} - {first}" for other in others)]]
    below = [["site, model", *(kind.title for kind in kinds)]]
    for row in rows:
        cells = [row.values[name].text(score) if name in row.values else "-" for name in names]
        for name in others:
            cells.append(row.differences[name].text(score, sign="+") if name in row.differences else "-")
        table.append([row.label, f"{row.images:,}", *cells])
        for name, found in row.counted.items():
            known = [found[kind.name].value if kind.name in found else None for kind in kinds]
            below.append([f"{row.label}, {name}", *(k.text(one) for k, one in zip(kinds, known, strict=True))])
    unit = " in percent" if score.percent else ""
    caption = f"{score.title}{unit} on {result.data}, with 95 % bootstrap intervals"
    return [(caption, table), *([("", below)] if kinds else [])]


def evaluation_table(result: EvaluationResult) -> str:
    """Return the tables for a terminal, with notes below them."""
    lines = [line for caption, rows in tables_of(result) for line in (caption, *aligned(rows))]
    return "\n".join([*lines, *notes_on(result)])


def notes_on(result: EvaluationResult) -> Iterator[str]:
    """Yield what a reader of the tables should know."""
    for model in (one.name for one in result.models):
        scores = [site.models[model] for site in result.sites.values() if model in site.models]
        if scores and (remarks := result.learned.remarks_on_counts(_summed(result, scores), result.classes)):
            yield f"{POOLED}, {model}: {'; '.join(remarks)}."
    yield from (f"not evaluated: {site}: {reason}" for site, reason in result.left_out.items())
    for site, one in result.sites.items():
        yield from (f"not evaluated: {site}, {model}: {reason}" for model, reason in one.failures.items())
        if few := sorted({number for scores in one.models.values() for number in scores.withheld}):
            named = ", ".join(result.classes[number] for number in few)
            yield f"{site}: without the scores by class of {named}, of which it lets no histogram leave."
