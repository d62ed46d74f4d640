# SPDX-License-Identifier: Apache-2.0
"""The numbers of a figure, before anything is drawn: charts of lines, bars, counts, images; and their
CSV.

Everything drawn is defined here first, in plain units: fractions, seconds, rounds.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np

from fdg_plugins.errors import FDGError
from fdg_plugins.lab.analysis.estimates import Estimate, csv_fields
from fdg_plugins.lab.analysis.figures.style import Look


class NothingToDrawError(FDGError):
    """The runs have the numbers of a figure, but a sentence says all of them."""


@dataclass(frozen=True)
class Origin:
    """The data behind the numbers, repeated in every line of their CSV."""

    data: str
    stand_in: bool
    initial_weights: str


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The fields that all figures share. ``name`` is the file name without suffix; ``caption`` describes the numbers.

    ``notes`` inform the author of the figure about data that was left out.
    """

    name: str
    title: str
    caption: str
    origin: Origin
    notes: tuple[str, ...] = ()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the numbers, one dictionary per line of the CSV; all have the same keys."""
        raise NotImplementedError


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


MANY_SITES = 20  # of one domain; more lines of one colour would be a block


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

    def alike(self) -> Mapping[tuple[str, str], Sequence[Line]]:
        """Return the lines by label and quantity, such as those of all sites of a domain, in the order of the first.

        Of more than :data:`MANY_SITES`, the median, the quartiles and the range are drawn instead.
        """
        found: dict[tuple[str, str], list[Line]] = {}
        for line in self.lines:
            found.setdefault((line.label, line.quantity), []).append(line)
        return found


class Scale(StrEnum):
    """The kind of the ``x`` axis; ``ZERO_AND_LOG`` begins with zero and is logarithmic from the next value on."""

    ROUNDS = "rounds"
    LINEAR = "linear"
    LOG = "log"
    ZERO_AND_LOG = "zero and log"
    CATEGORIES = "categories"


@dataclass(frozen=True, kw_only=True)
class Chart(Picture):
    """Panels of lines, at most ``columns`` side by side. The lines of the first of ``quantities`` are solid, of the
    second dotted.

    ``legend`` contains all labels of lines in the legend's order, by default that of the lines. ``categories`` are the
    texts at ``x`` = 0, 1, ... if the values are not numbers. ``is_matrix``: the panels of a row show one quantity,
    those of a column belong together. ``linear_to``: the ``y`` axis is linear up to this magnitude, logarithmic beyond.
    """

    x_label: str
    panels: tuple[Panel, ...]
    columns: int
    quantities: tuple[str, ...] = ()
    legend: tuple[str, ...] = ()
    scale: Scale = Scale.ROUNDS
    categories: tuple[str, ...] = ()
    is_matrix: bool = False
    linear_to: float | None = None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each point: mean and standard deviation (empty for one seed) over ``seeds`` runs."""
        for panel in self.panels:
            for line in panel.lines:
                for x, point in line.points.items():
                    yield {**self._labels(panel, line, x), **csv_fields(point)}

    def _labels(self, panel: Panel, line: Line, x: float) -> dict[str, Any]:
        return {
            "panel": panel.title,
            "line": line.name or line.label,
            "quantity": line.quantity or panel.y_label,
            self.x_label: self.categories[int(x)] if self.categories else x,
        }


@dataclass(frozen=True)
class Bar:
    """One bar: the median of ``count`` values, and the quartiles below and above it."""

    label: str
    look: Look
    lower: float
    median: float
    upper: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Bars(Picture):
    """Panels of bars by title, side by side, with the same methods in the same order."""

    x_label: str
    panels: Mapping[str, tuple[Bar, ...]]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each bar."""
        for title, bars in self.panels.items():
            for bar in bars:
                yield {
                    "panel": title,
                    "bar": bar.label,
                    "lower quartile": bar.lower,
                    "median": bar.median,
                    "upper quartile": bar.upper,
                    "rounds": bar.count,
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


class Outcome(IntEnum):
    """What a prediction makes of a pixel (voxel); ``TRUE_NEGATIVE``: background that is predicted as background."""

    TRUE_NEGATIVE = 0
    TRUE_POSITIVE = 1
    FALSE_POSITIVE = 2
    FALSE_NEGATIVE = 3


@dataclass(frozen=True)
class SegmentedImage:
    """The scores of one image: Dice, the pixels (voxels) by outcome, and the 95 % Hausdorff distance."""

    file: str
    dice: float
    true_positives: int
    false_positives: int
    false_negatives: int
    hausdorff95: float


@dataclass(frozen=True, eq=False)
class ShownImage:
    """An image in a figure: uint8 ``[H, W, 3]``, and the :class:`Outcome` of each pixel, uint8 ``[H, W]``.

    ``case`` says why it is shown, ``label`` is its title; ``ratio`` is the height of a pixel divided by its width.
    """

    case: str
    label: str
    file: str
    pixels: np.ndarray
    outcomes: np.ndarray
    ratio: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Overlays(Picture):
    """Images with the outcomes laid over, from the best to the worst, and the scores of all images.

    ``unit``: that of the Hausdorff distances.
    """

    shown: tuple[ShownImage, ...]
    images: tuple[SegmentedImage, ...]
    unit: str
    held_out: str

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each image of the held-out domain."""
        cases = {shown.file: shown.case for shown in self.shown}
        for image in self.images:
            yield {
                "domain": self.held_out,
                "file": image.file,
                "case": cases.get(image.file, ""),
                "dice": image.dice,
                "true positives": image.true_positives,
                "false positives": image.false_positives,
                "false negatives": image.false_negatives,
                "hd95": image.hausdorff95,
                "unit of hd95": self.unit,
            }


def render_csv(picture: Picture) -> str:
    """Return the plotted numbers as CSV with a header, unrounded; fractions stay fractions."""
    origin = {
        "data": picture.origin.data,
        "stand_in": str(picture.origin.stand_in).lower(),
        "initial_weights": picture.origin.initial_weights,
    }
    rows = [{**row, **origin} for row in picture.rows()]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
