# SPDX-License-Identifier: Apache-2.0
"""The runs of one figure by method and settings, its caption, and means over seeds."""

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from fdg_plugins.lab.analysis.comparable import Group, check_comparable, group_runs, without_repeats
from fdg_plugins.lab.analysis.estimates import Estimate, estimate
from fdg_plugins.lab.analysis.facts import commonest_in_domains, described
from fdg_plugins.lab.analysis.figures.picture import Line, Origin, Panel
from fdg_plugins.lab.analysis.figures.style import Look, domain_order, method_looks
from fdg_plugins.lab.analysis.runs import Run

Key = TypeVar("Key", bound=Hashable)


class Material:
    """Comparable runs, each once, by method and settings, each with a look.

    ``apart_from``: settings that may differ. Raises ``SettingsError`` if the runs differ in more than these, method,
    held-out domain and seed.
    """

    def __init__(self, runs: Sequence[Run], apart_from: Sequence[str] = ()) -> None:
        check_comparable(runs, apart_from)
        self.runs = without_repeats(runs, apart_from)
        groups = group_runs(self.runs, apart_from, beside_defaults=False)
        self.groups: list[tuple[Group, Look]] = list(
            zip(groups, method_looks([one.method for one in groups]), strict=True)
        )
        self.targets = domain_order(self.runs[0].dataset, (run.target for run in self.runs))
        record = self.runs[0].record
        self.origin = Origin(record.data, record.stand_in, record.initial_weights.label)


def slug(title: str) -> str:
    """Return a title as a part of a file name: ``fedomg-kappa-0.1``."""
    words = "".join(letter if letter.isalnum() or letter in "._-" else " " for letter in title.lower())
    return "-".join(words.split())


def over_seeds(runs: Iterable[Run], values: Callable[[Run], Mapping[float, float]]) -> dict[float, Estimate]:
    """Return mean and standard deviation over the runs, one per seed, at each ``x`` for which a run has a value.

    ``values`` returns a run's values by ``x``; a value that is not finite is ignored.
    """
    by_x: dict[float, dict[int, float]] = {}
    for run in runs:
        for x, value in finite(values(run)).items():
            by_x.setdefault(x, {})[run.seed] = value
    found = {x: estimate(by_x[x]) for x in sorted(by_x)}
    return {x: point for x, point in found.items() if point is not None}


def finite(values: Mapping[Key, float]) -> dict[Key, float]:
    """Return the finite ones of ``values``."""
    return {key: value for key, value in values.items() if math.isfinite(value)}


def score_panel(runs: Sequence[Run], title: str, lines: Iterable[Line]) -> Panel:
    """Return the panel of a score of ``runs``, with that of a constant answer if it is the share of right images.

    Over several held-out domains, the latter is the mean of theirs.
    """
    score, shares = runs[0].record.score, commonest_in_domains(runs).values()
    chance = statistics.fmean(shares) if shares else None
    bounds = (0.0, 1.0) if score.percent else (-math.inf, math.inf)
    return Panel(title, score.name, tuple(lines), is_fraction=score.percent, bounds=bounds, chance=chance)


def caption_of(runs: Sequence[Run]) -> str:
    """Return the caption of a figure: the data, the settings of the runs, and the seeds."""
    seeds = sorted({run.seed for run in runs})
    over = (
        f"one seed ({seeds[0]})"
        if len(seeds) == 1
        else f"mean ± standard deviation over seeds {', '.join(map(str, seeds))}"
    )
    return f"{described(runs)}; {over}"
