# SPDX-License-Identifier: Apache-2.0
"""The record of an evaluation of finished models, ``evaluation.json``, and its table, with intervals."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pydantic

from fdg_plugins.core.bootstrap import GAINS, PAIRED, RIGHT_OR_WRONG, interval_of
from fdg_plugins.messages import ModelScores
from fdg_plugins.record.round_record import Recorded
from fdg_plugins.record.run_record import pooled_sums
from fdg_plugins.record.text import aligned
from fdg_plugins.tasks import TASKS, Counts, ScoreKind, Task
from fdg_plugins.tasks.counts import FEWEST

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

    def counts(self, scores: Iterable[ModelScores]) -> Counts:
        """Return a model's counts, added up over sites."""
        each = [self.learned.read_counts(one.counts, len(self.classes)) for one in scores]
        return {name: np.sum([one[name] for one in each], axis=0) for name in self.learned.reads}


class Value(NamedTuple):
    """A score, or a difference of two, and its 95 % interval, None if it is not known."""

    value: float
    interval: tuple[float, float] | None

    def text(self, kind: ScoreKind, *, sign: str = "") -> str:
        """Return it for display: ``81.2 [79.0, 83.3]``."""
        shown = [f"{kind.factor * each:{sign}.1f}" for each in (self.value, *(self.interval or ()))]
        return f"{shown[0]} [{', '.join(shown[1:])}]" if self.interval else shown[0]


class Line(NamedTuple):
    """One model at a site, or at all of them together: its scores by name.

    ``difference``: to the first model, on the same images; None of the first one, or if it is not known.
    """

    site: str
    domain: str
    images: int
    model: str
    values: Mapping[str, Value]
    difference: Value | None

    @property
    def place(self) -> str:
        """The site, with its domain if that has another name."""
        return self.site if self.domain in ("", self.site) else f"{self.site} ({self.domain})"


def lines_of(result: EvaluationResult) -> list[Line]:
    """Return a line for each site and model, and for each model at all sites if several are and all evaluated it."""
    groups = [(name, one.domain, [one]) for name, one in result.sites.items()]
    groups += [(POOLED, "", [*result.sites.values()])] if len(groups) > 1 else []
    return [
        _line(result, site, domain, sites, model.name)
        for site, domain, sites in groups
        for model in result.models
        if all(model.name in one.models for one in sites)
    ]


def _line(result: EvaluationResult, site: str, domain: str, sites: Sequence[SiteScores], model: str) -> Line:
    task, scores = result.learned, [one.models[model] for one in sites]
    summary = task.summary(pooled_sums(scores), result.counts(scores))
    kinds = [kind for kind in (task.score, *task.summary_kinds) if kind.name in summary]
    found = {kind.name: Value(summary[kind.name].value, summary[kind.name].interval_in(kind)) for kind in kinds}
    difference = None
    if task.one_class_per_image:
        right = [one.sums[task.score.name] for one in scores]
        outcomes = [(round(one.sum), one.count - round(one.sum)) for one in right]
        found[task.score.name] = Value(found[task.score.name].value, interval_of(outcomes, RIGHT_OR_WRONG))
    first = result.models[0].name
    if model != first and all("0" in one.pairs for one in scores):
        pairs, name = [one.pairs["0"] for one in scores], task.score.name
        gains = PAIRED if task.one_class_per_image else GAINS
        before = task.summary(pooled_sums(one.models[first] for one in sites), {})[name].value
        difference = Value(found[name].value - before, interval_of(pairs, gains))
    return Line(site, domain, sum(one.images for one in sites), model, found, difference)


def table_of(result: EvaluationResult) -> tuple[str, list[list[str]]]:
    """Return the caption of the table, and its rows, the first of which is the head."""
    kinds, first = (result.score, *result.learned.summary_kinds), result.models[0].name
    table = [["site", "model", "images", *(kind.title for kind in kinds), f"minus {first}"]]
    for one in lines_of(result):
        cells = [one.values[kind.name].text(kind) if kind.name in one.values else "-" for kind in kinds]
        cells.append(one.difference.text(result.score, sign="+") if one.difference else "-")
        table.append([one.place, one.model, f"{one.images:,}", *cells])
    unit = "percent; " if result.score.percent else ""
    caption = f"{result.score.title} and other scores on {result.data}, {unit}in brackets: 95 % intervals"
    return caption, [row if len(result.models) > 1 else row[:-1] for row in table]


def evaluation_table(result: EvaluationResult) -> str:
    """Return the table for a terminal, and what a reader of it should know."""
    caption, rows = table_of(result)
    return "\n".join([caption, *aligned(rows), *notes_on(result)])


def notes_on(result: EvaluationResult) -> Iterator[str]:
    """Yield what a reader of the table should know."""
    for model in (one.name for one in result.models):
        if scores := [site.models[model] for site in result.sites.values() if model in site.models]:
            remarks = result.learned.remarks(pooled_sums(scores), result.counts(scores), result.classes)
            yield from [f"{POOLED}, {model}: {'; '.join(remarks)}."] if remarks else []
    yield from (f"not evaluated: {site}: {reason}" for site, reason in result.left_out.items())
    for site, one in result.sites.items():
        yield from (f"not evaluated: {site}, {model}: {reason}" for model, reason in one.failures.items())
        if one.images < FEWEST:
            yield f"{site}: fewer than {FEWEST} images."
        if few := sorted({number for scores in one.models.values() for number in scores.withheld}):
            named = ", ".join(result.classes[number] for number in few)
            yield f"{site}: without the scores by class of {named}, of which it lets no histogram leave."
