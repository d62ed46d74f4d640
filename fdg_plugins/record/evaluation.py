# SPDX-License-Identifier: Apache-2.0
"""The record of an evaluation of finished models, ``evaluation.json``, and its table, with bootstrap intervals."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import NamedTuple

import pydantic

from fdg_plugins.core.bootstrap import PAIRED, RIGHT_OR_WRONG, interval_of
from fdg_plugins.messages import ModelScores, ScoreSum
from fdg_plugins.record.run_record import Recorded
from fdg_plugins.record.text import aligned
from fdg_plugins.tasks import TASKS, ScoreKind

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
    data: str
    stand_in: bool
    classes: tuple[str, ...]
    models: tuple[EvaluatedModel, ...]
    sites: dict[str, SiteScores]
    left_out: dict[str, str]
    versions: dict[str, str]

    @property
    def score(self) -> ScoreKind:
        """The score of the task."""
        return TASKS.get(self.task).score


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

    A model that was not evaluated there, or not at all of the sites, has none.
    """

    site: str
    domain: str
    images: int
    values: Mapping[str, Value]
    differences: Mapping[str, Value]


def rows_of(result: EvaluationResult) -> Iterator[Row]:
    """Yield a row for each site and, if there are several, one for all of them."""
    by_image = TASKS.get(result.task).one_class_per_image
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
    return Row(name, domain, sum(one.images for one in sites), values, differences)


def _value(sums: Sequence[ScoreSum], *, by_image: bool) -> Value:
    value = sum(one.sum for one in sums) / sum(one.count for one in sums)
    counts = [(round(one.sum), one.count - round(one.sum)) for one in sums]
    return Value(value, interval_of(counts, RIGHT_OR_WRONG) if by_image else None)


def _difference(pairs: Sequence[Sequence[int]]) -> Value:
    """Return the later model's score minus the first one's, from their paired counts at the sites."""
    gained = sum(later - first for _, first, later, _ in pairs)
    return Value(gained / sum(map(sum, pairs)), interval_of(pairs, PAIRED))


def evaluation_table(result: EvaluationResult) -> str:
    """Return the table for a terminal."""
    names = [model.name for model in result.models]
    first, *others = names
    rows = [["site", "images", *names, *(f"{other} - {first}" for other in others)]]
    for row in rows_of(result):
        label = row.site if row.domain in ("", row.site) else f"{row.site} ({row.domain})"
        cells = [row.values[name].text(result.score) if name in row.values else "-" for name in names]
        cells += [
            row.differences[name].text(result.score, sign="+") if name in row.differences else "-" for name in others
        ]
        rows.append([label, f"{row.images:,}", *cells])
    unit = " in percent" if result.score.percent else ""
    lines = [f"{result.score.title}{unit} on {result.data}, with 95 % bootstrap intervals", *aligned(rows)]
    failed = {f"{site}, {model}": why for site, one in result.sites.items() for model, why in one.failures.items()}
    lines += starmap("not evaluated: {}: {}".format, {**result.left_out, **failed}.items())
    return "\n".join(lines)
