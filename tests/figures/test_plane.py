# SPDX-License-Identifier: Apache-2.0
"""The plane through three models: distances in it are distances between models, and its corners are the models."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core.layout import ParameterKind
from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis.figures.plane import Plane

KINDS = {
    "weight": ParameterKind.TRAINABLE,
    "bias": ParameterKind.TRAINABLE,
    "norm.running_mean": ParameterKind.FLOAT_BUFFER,
    "norm.running_var": ParameterKind.FLOAT_BUFFER,
    "norm.num_batches_tracked": ParameterKind.INTEGER_BUFFER,
}
COORDINATES = st.floats(-20, 20)


def model(seed: int, scale: float = 1.0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": scale * torch.randn(4, 5, generator=generator, dtype=torch.float64),
        "bias": scale * torch.randn(3, generator=generator, dtype=torch.float64),
        "norm.running_mean": torch.randn(3, generator=generator, dtype=torch.float64),
        "norm.running_var": torch.rand(3, generator=generator, dtype=torch.float64),
        "norm.num_batches_tracked": torch.tensor(seed),
    }


def flat(state: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the trainable parameters as one vector."""
    return torch.cat([state[name].flatten() for name in ("weight", "bias")])


CORNERS = [model(seed) for seed in (1, 2, 3)]
PLANE = Plane(CORNERS, KINDS)


def test_two_parameters_by_hand() -> None:
    # The triangle (1, 1), (4, 1), (1, 5): legs of 3 and 4, so the plane is the page itself, moved by (1, 1).
    kinds = {"w": ParameterKind.TRAINABLE}
    corners = [{"w": torch.tensor(point)} for point in ([1.0, 1.0], [4.0, 1.0], [1.0, 5.0])]
    plane = Plane(corners, kinds)
    for found, expected in zip(plane.corners, [(0.0, 0.0), (3.0, 0.0), (0.0, 4.0)], strict=True):
        assert found == pytest.approx(expected)
    assert plane.coefficients(1.5, 2.0) == pytest.approx((0.0, 0.5, 0.5))
    assert plane.model_at(1.5, 2.0)["w"].tolist() == pytest.approx([2.5, 3.0])
    place = plane.place({"w": torch.tensor([2.0, 3.0])})
    assert (place.x, place.y, place.distance) == pytest.approx((1.0, 2.0, 0.0))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_corners_are_the_models_and_lie_in_the_plane(scale: float) -> None:
    corners = [model(seed, scale) for seed in (1, 2, 3)]
    plane = Plane(corners, KINDS)
    for corner, (x, y) in zip(corners, plane.corners, strict=True):
        found = plane.model_at(x, y)
        for name in corner:
            if KINDS[name] is not ParameterKind.INTEGER_BUFFER:
                torch.testing.assert_close(found[name], corner[name])
        place = plane.place(corner)
        assert (place.x, place.y) == pytest.approx((x, y), abs=1e-9 * scale)
        assert place.distance == pytest.approx(0.0, abs=1e-9 * scale)


@given(COORDINATES, COORDINATES, COORDINATES, COORDINATES)
@settings(max_examples=30, deadline=None)
def test_distances_in_the_plane_are_distances_between_models(
    x: float, y: float, other_x: float, other_y: float
) -> None:
    one, other = PLANE.model_at(x, y), PLANE.model_at(other_x, other_y)
    expected = math.hypot(x - other_x, y - other_y)
    assert float((flat(one) - flat(other)).norm()) == pytest.approx(expected, abs=1e-9)
    place = PLANE.place(one)
    assert (place.x, place.y, place.distance) == pytest.approx((x, y, 0.0), abs=1e-9)


@given(st.integers(4, 1000), COORDINATES, COORDINATES)
@settings(max_examples=30, deadline=None)
def test_the_place_of_a_model_is_the_nearest_point_of_the_plane(seed: int, x: float, y: float) -> None:
    beside = model(seed)
    place = PLANE.place(beside)
    foot = PLANE.model_at(place.x, place.y)
    assert float((flat(beside) - flat(foot)).norm()) == pytest.approx(place.distance)
    assert place.distance <= float((flat(beside) - flat(PLANE.model_at(x, y))).norm()) + 1e-9


@given(COORDINATES, COORDINATES)
@settings(max_examples=30, deadline=None)
def test_the_coefficients_sum_to_one_and_combine_parameters_and_float_buffers_alike(x: float, y: float) -> None:
    coefficients = PLANE.coefficients(x, y)
    assert math.fsum(coefficients) == pytest.approx(1.0)
    found = PLANE.model_at(x, y)
    for name in ("weight", "norm.running_mean"):
        expected = sum(factor * corner[name] for factor, corner in zip(coefficients, CORNERS, strict=True))
        torch.testing.assert_close(found[name], expected)
    assert bool((found["norm.running_var"] >= 0).all())
    assert found["norm.num_batches_tracked"] == 1


def test_beyond_the_triangle_a_variance_that_would_be_negative_is_zero() -> None:
    corners = [dict(corner) for corner in CORNERS]
    for corner, variance in zip(corners, (1.0, 5.0, 1.0), strict=True):
        corner["norm.running_var"] = torch.full((3,), variance, dtype=torch.float64)
    plane = Plane(corners, KINDS)
    width = plane.corners[1][0]
    assert plane.model_at(-width, 0.0)["norm.running_var"].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, -3.0])
def test_models_on_one_line_are_refused(factor: float) -> None:
    first, second = CORNERS[:2]
    third = {name: value + factor * (second[name] - value) for name, value in first.items()}
    with pytest.raises(DataError, match="the three local models lie on one line"):
        Plane([first, second, third], KINDS)


def test_two_equal_models_are_refused_as_a_line() -> None:
    with pytest.raises(DataError, match="lie on one line"):
        Plane([CORNERS[0], CORNERS[0], CORNERS[1]], KINDS)
    with pytest.raises(DataError, match="lie on one line"):
        Plane([CORNERS[0]] * 3, KINDS)


def test_the_models_are_left_as_they_were() -> None:
    before = [{name: value.clone() for name, value in corner.items()} for corner in CORNERS]
    PLANE.place(PLANE.model_at(3.0, -4.0))
    assert all(
        torch.equal(value, corner[name])
        for one, corner in zip(before, CORNERS, strict=True)
        for name, value in one.items()
    )
