# SPDX-License-Identifier: Apache-2.0
"""Trees of vessels for the drawn retinas: branching lines that leave the optic disc and end within the field of view.

Lengths are in units of the field of view's radius, angles in radians; the field of view is the unit disc.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STEP = 0.04
EDGE = 0.96  # vessels end at this distance from the centre
THINNEST = 0.018
ROOM = 0.085  # between a vessel's end and any other vessel
FREE_AT_START = 0.2
MOST_LINES = 60

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A vessel: its points, and its width at each."""

    points: tuple[Point, ...]
    widths: tuple[float, ...]


@dataclass(frozen=True)
class _Start:
    """Where a vessel begins: its point, heading and width, and how strongly it bends per step."""

    point: Point
    heading: float
    width: float
    bend: float


def optic_disc(generator: np.random.Generator) -> Point:
    """Return the centre of the optic disc, on the left or the right of the centre."""
    side = generator.choice((-1.0, 1.0))
    return float(side * generator.uniform(0.3, 0.6)), float(generator.uniform(-0.15, 0.15))


def grow(disc: Point, generator: np.random.Generator) -> list[Line]:
    """Return the vessels of one retina, thick ones first."""
    starts = list(_trunks(disc, generator))
    lines: list[Line] = []
    while starts and len(lines) < MOST_LINES:
        taken = np.array([point for line in lines for point in line.points]).reshape(-1, 2)
        line, branches = _vessel(starts.pop(0), taken, generator)
        lines.append(line)
        starts += branches
    return lines


def _trunks(disc: Point, generator: np.random.Generator) -> Iterator[_Start]:
    """Yield the vessels that leave the optic disc: two wide arcades around the centre, and short ones to the rim."""
    inward = 0.0 if disc[0] < 0 else np.pi
    for side in (-1.0, 1.0):
        turn = side if inward == 0.0 else -side
        for spread, width in ((1.15, 0.075), (0.75, 0.055)):
            heading = inward + turn * (spread + generator.normal(0.0, 0.1))
            yield _Start(disc, heading, width * generator.uniform(0.85, 1.15), -turn * 0.028)
        heading = inward + np.pi + turn * generator.uniform(0.4, 1.1)
        yield _Start(disc, heading, generator.uniform(0.04, 0.06), 0.0)


def _vessel(start: _Start, taken: NDArray[np.float64], generator: np.random.Generator) -> tuple[Line, list[_Start]]:
    """Follow a vessel until it is thin, at the edge, or near another; return it and the vessels that branch off.

    ``taken`` ``[N, 2]`` are the points of other vessels; those around the start are no obstacle.
    """
    point, heading, width, bend = start.point, start.heading, start.width, start.bend
    others = taken[np.hypot(*(taken - point).T) > FREE_AT_START]
    points, widths = [point], [width]
    branches: list[_Start] = []
    winding = 0.0
    while width > THINNEST and np.hypot(*point) < EDGE and _is_free(point, others):
        winding = 0.8 * winding + generator.normal(0.0, 0.04)
        heading += bend + winding
        point = (float(point[0] + STEP * np.cos(heading)), float(point[1] + STEP * np.sin(heading)))
        width *= 0.985
        points.append(point)
        widths.append(width)
        if len(points) > 3 and generator.random() < 0.14:
            side = generator.choice((-1.0, 1.0))
            child = width * generator.uniform(0.55, 0.8)
            branches.append(_Start(point, heading + side * generator.uniform(0.45, 0.95), child, 0.0))
            heading -= side * 0.12
            width *= 0.93
    return Line(tuple(points), tuple(widths)), branches


def _is_free(point: Point, others: NDArray[np.float64]) -> bool:
    return not len(others) or float(np.hypot(*(others - point).T).min()) > ROOM
