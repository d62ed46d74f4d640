# SPDX-License-Identifier: Apache-2.0
"""The generalization gap over rounds: its mean and its spread over the sites (FedDG-GA paper, Fig. 3).

A site's gap in a round is the loss of the global model that it received, minus the loss of its own model after
its previous local training, both on its validation split: positive if the global model is worse. It is computed from
the record in the same way for every method. FedDG-GA's own gaps are the same numbers unless it is set to compute them
from accuracies or from the training split.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from fdg_plugins.core.adjustment import loss_gap
from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis.figures.groups import (
    Group,
    caption_of,
    checked,
    finite,
    group_runs,
    origin_of,
    over_seeds,
    targets_of,
)
from fdg_plugins.lab.analysis.figures.picture import Chart, Line, Panel
from fdg_plugins.lab.analysis.names import is_centralised
from fdg_plugins.lab.analysis.runs import Run

MEAN = "mean over sites"
DEVIATION = "std over sites"
OUTLYING = 8.0  # times the median


def gaps_by_round(run: Run) -> dict[int, dict[str, float]]:
    """Return the gap of each site whose update a round used and that had trained before: from the second round on.

    A site that withholds its losses, or whose loss is not finite, has no gap.
    """
    received = {
        evaluation.after_round: {site: score.loss for site, score in evaluation.sites.items()}
        for evaluation in run.record.evaluations
    }
    own: dict[str, float] = {}
    gaps: dict[int, dict[str, float]] = {}
    for finished in run.record.rounds:
        losses = received.get(finished.round - 1, {})
        known = sorted({*finished.sites} & losses.keys() & own.keys())
        gaps[finished.round] = finite({site: loss_gap(losses[site], own[site]) for site in known})
        own.update({site: local.local.loss for site, local in finished.local.items() if local.local is not None})
    return {number: by_site for number, by_site in gaps.items() if by_site}


def mean_by_round(run: Run) -> dict[float, float]:
    """Return the mean of the gaps over the sites of each round."""
    return {number: statistics.fmean(by_site.values()) for number, by_site in gaps_by_round(run).items()}


def deviation_by_round(run: Run) -> dict[float, float]:
    """Return the standard deviation of the gaps over two or more sites (divisor n, since these are all the sites)."""
    return {
        number: statistics.pstdev(by_site.values())
        for number, by_site in gaps_by_round(run).items()
        if len(by_site) > 1
    }


def gaps(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Return one chart: means in the upper row, deviations in the lower, a column per held-out domain.

    Raises ``SettingsError`` if the runs are not comparable, and ``DataError`` if no run has a gap.
    """
    runs, notes = checked([run for run in runs if not is_centralised(run.method)] or runs)
    groups, targets, task = group_runs(runs), targets_of(runs), runs[0].record.task
    unit = f" ({task.loss_unit})" if task.loss_unit else ""
    panels = tuple(
        Panel(f"held out: {target}", f"{label}{unit}", tuple(_lines(groups, target, values)), bounds=(lowest, math.inf))
        for label, values, lowest in ((MEAN, mean_by_round, -math.inf), (DEVIATION, deviation_by_round, 0.0))
        for target in targets
    )
    lines = [line for panel in panels for line in panel.lines]
    if not lines:
        raise DataError(
            "no run has a generalization gap; expected at least two rounds, and sites that report the losses of the "
            "global and of their own model."
        )
    linear_to = linear_part([point.mean for line in lines for point in line.points.values()])
    scale = f"; logarithmic beyond ±{linear_to:g}" if linear_to is not None else ""
    return (
        Chart(
            name="gaps",
            title="Generalization gap over rounds",
            caption=f"{caption_of(runs, lines)}; gap: validation {task.loss_words} of the global model received "
            f"minus that of the site's own model before{scale}",
            origin=origin_of(runs),
            notes=notes,
            x_label="round",
            panels=panels,
            columns=len(targets),
            is_matrix=True,
            linear_to=linear_to,
        ),
    )


def linear_part(values: Sequence[float]) -> float | None:
    """Return the power of ten up to which an axis should be linear; None if all of it should.

    All of it, unless the largest value is so far from most others that they would look alike.
    """
    sizes = sorted(abs(value) for value in values if value != 0.0)
    if not sizes or sizes[-1] < OUTLYING * statistics.median(sizes):
        return None
    return 10.0 ** math.floor(math.log10(statistics.median(sizes)) + 0.5)


def _lines(groups: Sequence[Group], target: str, values: Callable[[Run], dict[float, float]]) -> Iterator[Line]:
    for group in groups:
        if points := over_seeds(group.held_out(target), values):
            yield Line(group.label, group.look, points)
