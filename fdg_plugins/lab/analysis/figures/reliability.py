# SPDX-License-Identifier: Apache-2.0
"""Reliability diagrams: how often models are right at each confidence, from the histograms in records.

Reference: Guo, Pleiss, Sun, Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, Fig. 1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis.facts import described
from fdg_plugins.lab.analysis.figures.charts import Material, stated_of
from fdg_plugins.lab.analysis.figures.picture import Look, Picture, numbered_look
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import RULES, SOURCE_VALIDATION, selected
from fdg_plugins.record.evaluation import EvaluationResult
from fdg_plugins.tasks import Counts, Task
from fdg_plugins.tasks.counts import CALIBRATION, FEWEST, ReliabilityBin, calibration_error, reliability


class Curve(NamedTuple):
    """The predictions of a method's models on the same images: a histogram ``[2, K]``, added up over ``models``."""

    label: str
    look: Look
    histogram: np.ndarray
    models: int = 1

    @property
    def images(self) -> int:
        """How many predictions of one model there are."""
        return int(self.histogram.sum()) // self.models

    @property
    def bins(self) -> list[tuple[ReliabilityBin, bool]]:
        """The bins that have images, and whether these are so few that the bin is marked."""
        return [(one, one.images < FEWEST * self.models) for one in reliability(self.histogram)]

    @property
    def error(self) -> float:
        """The calibration error of what is drawn."""
        found = calibration_error(self.histogram)
        return found.value if found is not None else float("nan")


@dataclass(frozen=True, kw_only=True)
class Reliability(Picture):
    """Reliability diagrams by the title of their panel."""

    panels: Mapping[str, Sequence[Curve]]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each bin with images."""
        for panel, curve in ((panel, curve) for panel, curves in self.panels.items() for curve in curves):
            facts = {"models": curve.models, "calibration_error": curve.error}
            for one, few in curve.bins:
                yield {"panel": panel, "line": curve.label, **one._asdict(), "few": str(few).lower(), **facts}


def reliability_of_runs(runs: Sequence[Run]) -> tuple[Reliability, ...]:
    """Return the diagrams of the source-selected models: a panel per held-out domain, a line per method.

    Raises ``SettingsError`` if the runs are not comparable, ``DataError`` if none has the histograms.
    """
    material, panels = Material(runs), dict[str, list[Curve]]()
    for target in material.targets:
        for group, look in material.groups:
            if found := [one for run in group.held_out(target) for one in _on_target(run)]:
                curve = Curve(group.title, look, np.sum(found, axis=0), len(found))
                panels.setdefault(f"held out: {target}", []).append(curve)
    if not panels:
        raise DataError(f"no run has the histograms of a reliability diagram; run with --set scores={CALIBRATION}.")
    seeds = sorted({run.seed for run in material.runs})
    words = f"predictions of seeds {', '.join(map(str, seeds))} together" if seeds[1:] else f"one seed ({seeds[0]})"
    caption = f"{described(material.runs)}; {words}; selection: {RULES[SOURCE_VALIDATION]}"
    return (_diagrams(material.runs[0].record.task, panels, stated_of(material.runs)["data"], caption),)


def reliability_of_evaluation(result: EvaluationResult) -> Iterator[Reliability]:
    """Yield the diagrams of an evaluation, if its task has any: a panel per site, a line per model."""
    panels: dict[str, list[Curve]] = {}
    for site, one in result.sites.items():
        for number, model in enumerate(result.models):
            scores = [one.models[model.name]] if model.name in one.models else []
            for found in _histogram(result.learned, result.counts(scores)) if scores else ():
                panels.setdefault(site, []).append(Curve(model.name, numbered_look(number), found))
    if panels:
        data = {"data": result.data, "stand_in": str(result.stand_in).lower()}
        yield _diagrams(result.learned, panels, data, result.data)


def _on_target(run: Run) -> Iterator[np.ndarray]:
    if (chosen := selected(run.record, SOURCE_VALIDATION)) is not None:
        yield from _histogram(run.record.task, run.record.counts_by_domain(chosen.sites).get(run.target, {}))


def _histogram(task: Task, counts: Counts) -> list[np.ndarray]:
    """Return the histogram ``[2, K]`` of confidences, added up over classes that are independent; none without."""
    found = task.counted(CALIBRATION)
    return [counts[found.reads].sum(axis=0)] if found is not None and found.reads in counts else []


def _diagrams(task: Task, panels: Mapping[str, Iterable[Curve]], data: Mapping[str, str], caption: str) -> Reliability:
    return Reliability(
        name="reliability",
        title="Reliability of confidences; percentages: calibration error",
        caption=caption + ("" if task.one_class_per_image else "; all classes together"),
        data=data,
        panels={title: tuple(curves) for title, curves in panels.items()},
    )
