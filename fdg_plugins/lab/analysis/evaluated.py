# SPDX-License-Identifier: Apache-2.0
"""Finished models evaluated at sites: their scores with 95 % intervals as a data frame, and as a table with notes."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from fdg_plugins.core.bootstrap import GAINS, PAIRED, RIGHT_OR_WRONG, interval_of
from fdg_plugins.lab.analysis.table import NONE, Sheet
from fdg_plugins.record.evaluation import EvaluationResult, SiteScores
from fdg_plugins.record.run_record import pooled_sums
from fdg_plugins.tasks.counts import FEWEST

POOLED = "all sites"
SCORE, DIFFERENCE = "score", "difference"
BOUNDS = ("", "_low", "_high")  # of a column: the value, and its interval


def scores_of(result: EvaluationResult) -> pd.DataFrame:
    """Return a line for each site and model, and for each model at all sites if several are and all evaluated it.

    ``score``, the ``difference`` to the first model on the same images, and the other scores by name are fractions,
    each with the bounds of its interval, ``_low`` and ``_high``. What is not known is empty.
    """
    groups = [(name, one.domain, [one]) for name, one in result.sites.items()]
    groups += [(POOLED, "", [*result.sites.values()])] if len(groups) > 1 else []
    lines = [
        {"site": site, "domain": domain, "model": model.name, **_numbers(result, model.name, sites)}
        for site, domain, sites in groups
        for model in result.models
        if all(model.name in one.models for one in sites)
    ]
    keys = (SCORE, DIFFERENCE, *(kind.name for kind in result.learned.summary_kinds))
    columns = ["site", "domain", "images", "model", *(key + bound for key in keys for bound in BOUNDS)]
    return pd.DataFrame(lines, columns=columns, dtype=object)


def _numbers(result: EvaluationResult, model: str, sites: Sequence[SiteScores]) -> dict[str, Any]:
    task, scores = result.learned, [one.models[model] for one in sites]
    summary = task.summary(pooled_sums(scores), result.counts(scores))
    kinds = {SCORE: task.score, **{kind.name: kind for kind in task.summary_kinds}}
    known = {key: (summary[kind.name], kind) for key, kind in kinds.items() if kind.name in summary}
    found = {key: (one.value, one.interval_in(kind)) for key, (one, kind) in known.items()}
    if task.one_class_per_image:
        right = [one.sums[task.score.name] for one in scores]
        outcomes = [(round(one.sum), one.count - round(one.sum)) for one in right]
        found[SCORE] = found[SCORE][0], interval_of(outcomes, RIGHT_OR_WRONG)
    first = result.models[0].name
    if model != first and all("0" in one.pairs for one in scores):
        before = task.summary(pooled_sums(one.models[first] for one in sites), {})[task.score.name].value
        gains = PAIRED if task.one_class_per_image else GAINS
        found[DIFFERENCE] = found[SCORE][0] - before, interval_of([one.pairs["0"] for one in scores], gains)
    numbers = {key: (value, *(interval or ())) for key, (value, interval) in found.items()}
    bounded = {key + bound: one for key, own in numbers.items() for bound, one in zip(BOUNDS, own, strict=False)}
    return {"images": sum(one.images for one in sites), **bounded}


def sheet_of(result: EvaluationResult) -> Sheet:
    """Return the table of the scores, and what a reader of it should know."""
    frame, score, others = scores_of(result), result.score, result.learned.summary_kinds
    columns = [(SCORE, score.title, score.factor, ""), *((one.name, one.title, one.factor, "") for one in others)]
    columns += [(DIFFERENCE, f"minus {result.models[0].name}", score.factor, "+")] if len(result.models) > 1 else []
    places = zip(frame["site"], frame["domain"], strict=True)
    texts: dict[str, Any] = {
        "site": [site if domain in ("", site) else f"{site} ({domain})" for site, domain in places],
        "model": frame["model"],
        "images": frame["images"].map("{:,}".format),
    }
    for key, title, factor, sign in columns:
        numbers = frame[[key + bound for bound in BOUNDS]].itertuples(index=False, name=None)
        texts[title] = [_text([factor * one for one in own if pd.notna(one)], sign) for own in numbers]
    unit = "percent; " if score.percent else ""
    caption = f"{score.title} and other scores on {result.data}, {unit}in brackets: 95 % intervals."
    return Sheet(caption, pd.DataFrame(texts), 2, [*_notes(result)])


def _text(numbers: Sequence[float], sign: str) -> str:
    """Return a value with its interval, if it is known, for display: ``81.2 [79.0, 83.3]``."""
    value, *bounds = [f"{one:{sign}.1f}" for one in numbers] or [NONE]
    return f"{value} [{', '.join(bounds)}]" if bounds else value


def _notes(result: EvaluationResult) -> Iterator[str]:
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
