# SPDX-License-Identifier: Apache-2.0
"""Finished models evaluated at sites that trained none of them: scores with 95 % intervals, as a table and as figures.

A reliability diagram shows how often models are right at each confidence, from the histograms in records. Reference:
Guo, Pleiss, Sun, Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, Fig. 1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fdg_plugins.core.bootstrap import GAINS, PAIRED, RIGHT_OR_WRONG, interval_of
from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis.facts import described
from fdg_plugins.lab.analysis.figures.charts import Material, stated_of
from fdg_plugins.lab.analysis.figures.picture import Comparison, Look, Picture, Reliability, numbered_look
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import RULES, SOURCE_VALIDATION, selected
from fdg_plugins.lab.analysis.table import NONE, Sheet
from fdg_plugins.record.evaluation import EvaluationResult, SiteScores
from fdg_plugins.record.run_record import pooled_sums
from fdg_plugins.tasks import Counts, Task
from fdg_plugins.tasks.counts import BINS, CALIBRATION, FEWEST, calibration_error, reliability

POOLED = "all sites"
SCORE, DIFFERENCE = "score", "difference"
BOUNDS = ("", "_low", "_high")  # of a column: the value, and its interval


def scores_of(result: EvaluationResult) -> pd.DataFrame:
    """Return a line for each site and model, and for each model at all the sites that evaluated every one, if several.

    ``score``, the ``difference`` to the first model on the same images, and the other scores by name are fractions,
    each with the bounds of its interval, ``_low`` and ``_high``; then those by class, such as ``f1_0``. What is not
    known is empty.
    """
    groups = [(name, one.domain, [one]) for name, one in result.sites.items()]
    whole = [one for one in result.sites.values() if len(one.models) == len(result.models)]
    groups += [(POOLED, "", whole)] if len(whole) > 1 else []
    lines = [
        {"site": site, "domain": domain, "model": model.name, **_numbers(result, model.name, sites)}
        for site, domain, sites in groups
        for model in result.models
        if all(model.name in one.models for one in sites)
    ]
    keys = (SCORE, DIFFERENCE, *(kind.name for kind in result.learned.summary_kinds))
    columns = ["site", "domain", "images", "model", *(key + bound for key in keys for bound in BOUNDS)]
    columns += dict.fromkeys(name for line in lines for name in line if name not in columns)
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
    names = {kind.name for kind in kinds.values()}
    by_class = {name: one.value for name, one in summary.items() if name not in names}
    return {"images": sum(one.images for one in sites), **bounded, **by_class}


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


# --- as figures ---


def pictures_of_evaluation(result: EvaluationResult) -> tuple[Picture, ...]:
    """Return the figures of a result: a line for each site and model; for classes, with a reliability diagram."""
    models = tuple(one.name for one in result.models)
    minus = f"; differences: minus {models[0]}, on the same images" if len(models) > 1 else ""
    data = {"data": result.data, "stand_in": str(result.stand_in).lower()}
    comparison = Comparison(
        name="evaluation",
        title=f"{result.score.title} at sites that trained none of these models",
        caption=f"{result.data}; bars: 95 % intervals{minus}",
        data=data,
        frame=scores_of(result),
        models=models,
        score=result.score,
    )
    bins = [
        row
        for site, one in result.sites.items()
        for number, model in enumerate(models)
        for scores in ([one.models[model]] if model in one.models else [])
        for row in _curve(site, model, numbered_look(number), _histograms(result.learned, result.counts([scores])))
    ]
    drawn = () if comparison.frame.empty else (comparison,)  # no site may have scored a model
    return *drawn, *([_diagrams(result.learned, bins, data, result.data)] if bins else [])


def reliability_of_runs(runs: Sequence[Run]) -> tuple[Reliability, ...]:
    """Return the diagrams of the source-selected models: a panel per held-out domain, a line per method.

    Raises ``SettingsError`` if the runs are not comparable, ``DataError`` if none has the histograms.
    """
    material = Material(runs)
    bins = [
        row
        for target in material.targets
        for group, look in material.groups
        for row in _curve(
            f"held out: {target}", group.title, look, [one for run in group.held_out(target) for one in _on_target(run)]
        )
    ]
    if not bins:
        raise DataError(f"no run has the histograms of a reliability diagram; run with --set scores={CALIBRATION}.")
    seeds = sorted({run.seed for run in material.runs})
    words = f"predictions of seeds {', '.join(map(str, seeds))} together" if seeds[1:] else f"one seed ({seeds[0]})"
    caption = f"{described(material.runs)}; {words}; selection: {RULES[SOURCE_VALIDATION]}"
    return (_diagrams(material.runs[0].record.task, bins, stated_of(material.runs)["data"], caption),)


def _on_target(run: Run) -> Iterator[np.ndarray]:
    if (chosen := selected(run.record, SOURCE_VALIDATION)) is not None:
        yield from _histograms(run.record.task, run.record.counts_by_domain(chosen.sites).get(run.target, {}))


def _histograms(task: Task, counts: Counts) -> list[np.ndarray]:
    """Return the histograms ``[2, K]`` of confidences: one, or that of each class if they are independent."""
    found = task.counted(CALIBRATION)
    return [one for one in counts[found.reads] if one.any()] if found and found.reads in counts else []


def _curve(panel: str, line: str, look: Look, histograms: Sequence[np.ndarray]) -> Iterator[dict[str, Any]]:
    """Yield the bins of histograms of the same images together; few images of each are marked."""
    number = len(histograms)
    total = np.sum(histograms, axis=0) if number else np.zeros((2, BINS))
    error = calibration_error(total)
    for one in reliability(total):
        few = str(one.images < FEWEST * number).lower()
        facts = {"few": few, "histograms": number, "calibration_error": error and error.value}
        yield {"panel": panel, "line": line, "look": look, **one._asdict(), **facts}


def _diagrams(task: Task, bins: Iterable[dict[str, Any]], data: Mapping[str, str], caption: str) -> Reliability:
    return Reliability(
        name="reliability",
        title="Reliability of confidences; percentages: calibration error",
        caption=caption + ("" if task.one_class_per_image else "; all classes together"),
        data=data,
        frame=pd.DataFrame(bins, dtype=object),
    )
