# SPDX-License-Identifier: Apache-2.0
"""The Hausdorff distance of masks whose distances are known."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from fdg_plugins.lab.analysis.distances import hausdorff95


def point(*place: int, sides: tuple[int, ...] = (10, 12)) -> torch.Tensor:
    mask = torch.zeros(sides, dtype=torch.bool)
    mask[place] = True
    return mask


@pytest.mark.parametrize(("spacing", "expected"), [(None, 5.0), ((1.0, 1.0), 5.0), ((2.0, 0.5), math.hypot(6, 2))])
def test_the_unit_is_that_of_the_spacing(spacing: tuple[float, ...] | None, expected: float) -> None:
    assert hausdorff95(point(1, 2), point(4, 6), spacing) == pytest.approx(expected)


def test_volumes_are_measured_too() -> None:
    sides = (6, 6, 6)
    assert hausdorff95(point(0, 0, 0, sides=sides), point(1, 2, 2, sides=sides)) == pytest.approx(3.0)


def test_the_farthest_five_percent_do_not_count() -> None:
    line = torch.zeros(40, 50, dtype=torch.bool)
    line[10, :40] = True
    stray = line.clone()
    stray[35, 45] = True
    assert hausdorff95(stray, line) == 0.0
    moved = line.roll(3, dims=0)
    assert hausdorff95(moved, line) == pytest.approx(3.0)


def test_it_is_that_of_a_loop() -> None:
    generator = torch.Generator().manual_seed(2)
    one, two = (torch.rand(7, 9, generator=generator) > 0.8 for _ in range(2))
    spacing = np.array([0.5, 2.0])

    def outline(mask: torch.Tensor) -> list[np.ndarray]:
        padded = np.pad(mask.numpy(), 1)
        inner = [padded[1 + a : 8 + a, 1 + b : 10 + b] for a, b in ((1, 0), (-1, 0), (0, 1), (0, -1))]
        edge = mask.numpy() & ~np.logical_and.reduce(inner)
        return [np.array(place) for place in product(range(7), range(9)) if edge[place]]

    ways = [
        np.percentile([min(float(np.linalg.norm((a - b) * spacing)) for b in outline(to)) for a in outline(start)], 95)
        for start, to in ((one, two), (two, one))
    ]
    assert hausdorff95(one, two, tuple(spacing)) == pytest.approx(max(ways), rel=1e-5)


def test_empty_masks_have_a_rule() -> None:
    empty, full = torch.zeros(3, 4, dtype=torch.bool), torch.ones(3, 4, dtype=torch.bool)
    assert hausdorff95(empty, empty) == 0.0
    assert hausdorff95(empty, full) == hausdorff95(full, empty) == 5.0
    assert hausdorff95(empty, full, (2.0, 2.0)) == 10.0
