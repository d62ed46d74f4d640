# SPDX-License-Identifier: Apache-2.0
"""Figures of evaluated models: the scores at sites that trained none of them, and reliability diagrams.

A reliability diagram shows how often models are right at each confidence, from the histograms in records. Reference:
Guo, Pleiss, Sun, Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, Fig. 1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis.evaluated import scores_of
from fdg_plugins.lab.analysis.facts import described
from fdg_plugins.lab.analysis.figures.charts import Material, stated_of
from fdg_plugins.lab.analysis.figures.picture import Comparison, Look, Picture, Reliability, numbered_look
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import RULES, SOURCE_VALIDATION, selected
from fdg_plugins.record.evaluation import EvaluationResult
from fdg_plugins.tasks import Counts, Task
from fdg_plugins.tasks.counts import BINS, CALIBRATION, FEWEST, calibration_error, reliability


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
        for found in _histogram(result.learned, result.counts([scores]))
        for row in _curve(site, model, numbered_look(number), [found])
    ]
    return comparison, *([_diagrams(result.learned, bins, data, result.data)] if bins else [])


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
        yield from _histogram(run.record.task, run.record.counts_by_domain(chosen.sites).get(run.target, {}))


def _histogram(task: Task, counts: Counts) -> list[np.ndarray]:
    """Return the histogram ``[2, K]`` of confidences, added up over classes that are independent; none without."""
    found = task.counted(CALIBRATION)
    return [counts[found.reads].sum(axis=0)] if found is not None and found.reads in counts else []


def _curve(panel: str, line: str, look: Look, histograms: Sequence[np.ndarray]) -> Iterator[dict[str, Any]]:
    """Yield the bins of some models on the same images together; few images of a model are marked."""
    models = len(histograms)
    total = np.sum(histograms, axis=0) if models else np.zeros((2, BINS))
    error = calibration_error(total)
    for one in reliability(total):
        few = str(one.images < FEWEST * models).lower()
        facts = {"few": few, "models": models, "calibration_error": error and error.value}
        yield {"panel": panel, "line": line, "look": look, **one._asdict(), **facts}


def _diagrams(task: Task, bins: Iterable[dict[str, Any]], data: Mapping[str, str], caption: str) -> Reliability:
    return Reliability(
        name="reliability",
        title="Reliability of confidences; percentages: calibration error",
        caption=caption + ("" if task.one_class_per_image else "; all classes together"),
        data=data,
        frame=pd.DataFrame(bins, dtype=object),
    )
