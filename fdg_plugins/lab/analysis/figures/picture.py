# SPDX-License-Identifier: Apache-2.0
"""The numbers of a figure, before anything is drawn, in plain units: fractions and rounds."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from fdg_plugins.lab.analysis.estimates import Estimate
from fdg_plugins.lab.analysis.figures.style import Look


@dataclass(frozen=True)
class Origin:
    """The data behind the numbers, repeated in every line of them."""

    data: str
    stand_in: bool
    initial_weights: str


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The fields that all figures share; ``name`` is the file name without suffix."""

    name: str
    title: str
    caption: str
    origin: Origin

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the numbers, one dictionary per line; all have the same keys."""
        raise NotImplementedError

    def numbers(self) -> pd.DataFrame:
        """Return the plotted numbers, unrounded; fractions stay fractions."""
        origin = {**vars(self.origin), "stand_in": str(self.origin.stand_in).lower()}
        return pd.DataFrame([{**row, **origin} for row in self.rows()], dtype=object)


@dataclass(frozen=True)
class Line:
    """One line: a mean over seeds at each ``x``. ``quantity`` is the measured quantity if a panel shows two.

    ``is_constant``: the method does not depend on ``x``; the line crosses the panel for comparison.
    """

    label: str
    look: Look
    points: Mapping[float, Estimate]
    quantity: str = ""
    name: str = ""
    is_constant: bool = False


@dataclass(frozen=True)
class Panel:
    """Axes with a title, a label of ``y`` with its unit, and lines.

    ``bounds``: values that ``y`` cannot exceed, by definition; no band or axis does. ``chance``: the score of
    always naming the commonest class.
    """

    title: str
    y_label: str
    lines: tuple[Line, ...]
    is_fraction: bool = False
    bounds: tuple[float, float] = (-math.inf, math.inf)
    chance: float | None = None


class Scale(StrEnum):
    """The kind of the ``x`` axis; ``ZERO_AND_LOG`` begins with zero and is logarithmic from the next value on."""

    ROUNDS = "rounds"
    LINEAR = "linear"
    LOG = "log"
    ZERO_AND_LOG = "zero and log"
    CATEGORIES = "categories"


@dataclass(frozen=True, kw_only=True)
class Chart(Picture):
    """Panels of lines. Those of the first of ``quantities`` are solid, of the second dotted.

    ``categories`` are the texts at ``x`` = 0, 1, ... if the values are not numbers.
    """

    x_label: str
    panels: tuple[Panel, ...]
    quantities: tuple[str, ...] = ()
    scale: Scale = Scale.ROUNDS
    categories: tuple[str, ...] = ()

    @property
    def lines(self) -> list[Line]:
        """The lines of all panels."""
        return [line for panel in self.panels for line in panel.lines]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each point: mean and standard deviation (empty for one seed) over ``seeds`` runs."""
        for panel, line in ((one, line) for one in self.panels for line in one.lines):
            for x, point in line.points.items():
                numbers = point.numbers()
                yield {
                    "panel": panel.title,
                    "line": line.name or line.label,
                    "quantity": line.quantity or panel.y_label,
                    self.x_label: self.categories[int(x)] if self.categories else x,
                    **{name: numbers[name] for name in ("mean", "std", "seeds", "values")},
                }


@dataclass(frozen=True, kw_only=True)
class Counts(Picture):
    """Numbers of images: ``counts`` has one row per site and one column per class; ``domains``: the sites'."""

    sites: tuple[str, ...]
    domains: tuple[str, ...]
    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each site and class."""
        for site, domain, row in zip(self.sites, self.domains, self.counts, strict=True):
            for class_name, count in zip(self.classes, row, strict=True):
                yield {"site": site, "domain": domain, "class": class_name, "images": count}
