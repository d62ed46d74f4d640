# SPDX-License-Identifier: Apache-2.0
"""A figure before it is drawn: its texts, and a data frame with a line for each point, bin or count.

Reference: Okabe, Ito, "Color Universal Design", 2008, for the colours, without their yellow, which is too faint for a
thin line. Markers distinguish them in a greyscale print.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import pandas as pd

from fdg_plugins.tasks import ScoreKind

BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY_BLUE, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#666666"
PALETTE = (BLACK, VERMILLION, BLUE, GREEN, ORANGE, PURPLE, SKY_BLUE)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")

Look = tuple[str, str]  # matplotlib's names of a colour and a marker


def numbered_look(number: int) -> Look:
    """Return the look of item ``number``, counted from 0; the first 63 differ."""
    # Each cycle through the colours shifts the markers by one, so no pair recurs early.
    return PALETTE[number % len(PALETTE)], MARKERS[(number + number // len(PALETTE)) % len(MARKERS)]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The fields of all figures: ``name`` is the file name without suffix, ``data`` what each line of numbers repeats.

    ``data`` names the data, whether they are the stand-in, and the initial weights. ``frame`` is what is drawn; its
    column ``look`` is not among the numbers.
    """

    name: str
    title: str
    caption: str
    data: Mapping[str, str] = field(default_factory=dict)
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)

    def numbers(self) -> pd.DataFrame:
        """Return the plotted numbers, unrounded; fractions stay fractions."""
        return self.frame.drop(columns="look", errors="ignore").assign(**self.data)


class Counts(Picture):
    """Numbers of images, ``images``, of each ``class`` at each ``site`` of a ``domain``."""


class Reliability(Picture):
    """Reliability diagrams: the bins of each ``line`` in a ``panel``, added up over ``histograms`` of its images."""


@dataclass(frozen=True, kw_only=True)
class Comparison(Picture):
    """Scores of ``models`` by ``site``, and ``difference`` to the first; ``_low`` and ``_high`` bound an interval."""

    models: tuple[str, ...]
    score: ScoreKind


class Panel(NamedTuple):
    """Axes with a title and a label of ``y``; ``chance``: the score of always naming the commonest class."""

    title: str
    y_label: str
    chance: float | None = None


COLUMNS = ("panel", "y_label", "label", "line", "quantity", "look", "level", "x", "mean", "std", "seeds", "values")


@dataclass(frozen=True, kw_only=True)
class Chart(Picture):
    """Panels of lines. Those of the first of ``quantities`` are solid, of the second dotted.

    ``frame`` has :data:`COLUMNS`: means over seeds at each ``x`` of a ``line``, which the legend calls ``label``. A
    ``level`` line does not depend on ``x``; it crosses the panel for comparison. ``categories`` are the texts at ``x``
    = 0, 1, ... if the values are not numbers; ``symlog`` begins with zero, and is logarithmic from the next value on.
    ``bounds``: values that ``y`` cannot exceed, by definition; no band or axis does.
    """

    panels: tuple[Panel, ...]
    x_label: str = "round"
    quantities: tuple[str, ...] = ()
    scale: Literal["rounds", "linear", "log", "symlog"] = "rounds"
    categories: tuple[str, ...] = ()
    is_fraction: bool = False
    bounds: tuple[float, float] = (-math.inf, math.inf)

    def numbers(self) -> pd.DataFrame:
        """Return a line for each point: mean and standard deviation (empty for one seed) over ``seeds`` runs."""
        names, x = dict(enumerate(self.categories)), self.frame["x"]
        shown = self.frame[["panel", "line", "quantity"]].assign(**{self.x_label: x.map(names) if names else x})
        return shown.join(self.frame[["mean", "std", "seeds", "values"]]).assign(**self.data)

    def of(self, panel: Panel) -> pd.DataFrame:
        """Return the lines of a panel."""
        return self.frame[(self.frame["panel"] == panel.title) & (self.frame["y_label"] == panel.y_label)]
