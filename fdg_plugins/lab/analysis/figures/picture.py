# SPDX-License-Identifier: Apache-2.0
"""The numbers of a figure, without drawing: lines in panels, or numbers of images by site and class.

Reference: Okabe, Ito, "Color Universal Design", 2008, for the colours, without their yellow, which is too faint for a
thin line. Markers distinguish them in a greyscale print.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import pandas as pd

from fdg_plugins.lab.analysis.estimates import Estimate

BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY_BLUE, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#666666"
PALETTE = (BLACK, VERMILLION, BLUE, GREEN, ORANGE, PURPLE, SKY_BLUE)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


class Look(NamedTuple):
    """A colour and a marker (matplotlib's names of both)."""

    colour: str
    marker: str


def numbered_look(number: int) -> Look:
    """Return the look of item ``number``, counted from 0; the first 63 differ."""
    # Each cycle through the colours shifts the markers by one, so no pair recurs early.
    return Look(PALETTE[number % len(PALETTE)], MARKERS[(number + number // len(PALETTE)) % len(MARKERS)])


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The fields of all figures: ``name`` is the file name without suffix, ``data`` what each line of numbers repeats.

    ``data`` names the data, whether they are the stand-in, and the initial weights.
    """

    name: str
    title: str
    caption: str
    data: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the numbers, one dictionary per line; all have the same keys."""
        raise NotImplementedError

    def numbers(self) -> pd.DataFrame:
        """Return the plotted numbers, unrounded; fractions stay fractions."""
        return pd.DataFrame([{**row, **self.data} for row in self.rows()], dtype=object)


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

    @property
    def means(self) -> tuple[list[float], list[float]]:
        """The coordinates ``x`` and ``y``."""
        return list(self.points), [point.mean for point in self.points.values()]


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
    ZERO_AND_LOG = "symlog"


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
    """Numbers of images: ``counts`` has one row per site, indexed by domain and site, and one column per class."""

    counts: pd.DataFrame

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each site and class."""
        for (domain, site), row in self.counts.iterrows():
            for name, images in row.items():
                yield {"site": site, "domain": domain, "class": name, "images": images}
