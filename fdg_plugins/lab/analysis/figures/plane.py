# SPDX-License-Identifier: Apache-2.0
r"""The plane through three models, and the position of any model relative to it.

With ``u`` and ``v`` from the first model to the second and third, over trainable parameters, Gram-Schmidt yields the
axes ``e1 = u / |u|`` and ``e2 = (v - <v, e1> e1) / h``, where ``h`` is the norm of the expression in parentheses. The
corners are ``(0, 0)``, ``(|u|, 0)`` and ``(<v, e1>, h)``, and one unit is one unit of distance between models. A point
is an affine combination of the corners, ``(1 - s - t) first + s second + t third``, with ``t = y / h`` and
``s = (x - t <v, e1>) / |u|``; float buffers are combined with the same three coefficients. The axes, which are as
large as the model, are therefore never computed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fdg_plugins.core.layout import ParameterKind
from fdg_plugins.core.linear import combine, inner_product
from fdg_plugins.errors import DataError

State = Mapping[str, torch.Tensor]

# Below this fraction of the third model's distance from the first, its distance from the line is rounding error.
_ON_ONE_LINE = 1e-6


@dataclass(frozen=True)
class Place:
    """A model's position: the foot of its perpendicular in the plane, and its distance from the plane (L2)."""

    x: float
    y: float
    distance: float


class Plane:
    """The plane through three models with the same parameters.

    Args:
        corners: the three state dicts.
        kinds: the kind of each of their entries, which determines how entries are used and combined.

    Raises ``DataError`` if the models lie on one line.
    """

    def __init__(self, corners: Sequence[State], kinds: Mapping[str, ParameterKind]) -> None:
        self._corners = tuple(corners)
        self._kinds = kinds
        first, second, third = self._corners
        self._to_second, self._to_third = self._between(first, second), self._between(first, third)
        self._width = _norm(self._to_second)
        along = inner_product(self._to_third, self._to_second)
        self._foot = along / self._width if self._width > 0 else 0.0
        length = _norm(self._to_third)
        self._height = math.sqrt(max(length**2 - self._foot**2, 0.0))
        if min(self._width, self._height) <= _ON_ONE_LINE * length:
            raise DataError("the three local models lie on one line, so that no plane goes through them.")

    @property
    def corners(self) -> tuple[tuple[float, float], ...]:
        """The coordinates of the three models."""
        return (0.0, 0.0), (self._width, 0.0), (self._foot, self._height)

    def coefficients(self, x: float, y: float) -> tuple[float, float, float]:
        """Return the coefficients of the three models at a point; they sum to one."""
        third = y / self._height
        second = (x - third * self._foot) / self._width
        return 1.0 - second - third, second, third

    def model_at(self, x: float, y: float) -> dict[str, torch.Tensor]:
        """Return the model at a point: parameters and float buffers combined, integer buffers of the first model."""
        coefficients = torch.tensor(self.coefficients(x, y), dtype=torch.float64)
        return {name: self._entry(name, coefficients) for name in self._corners[0]}

    def place(self, model: State) -> Place:
        """Return the position of ``model``."""
        offset = self._between(self._corners[0], model)
        x = inner_product(offset, self._to_second) / self._width
        y = (inner_product(offset, self._to_third) - self._foot * x) / self._height
        _, second, third = self.coefficients(x, y)
        # From the residual itself: for a model in the plane, a difference of two squares would be rounding error.
        minus = torch.tensor([1.0, -second, -third], dtype=torch.float64)
        rest = {
            name: combine(minus, [value, self._to_second[name], self._to_third[name]]) for name, value in offset.items()
        }
        return Place(x, y, _norm(rest))

    def _between(self, start: State, end: State) -> dict[str, torch.Tensor]:
        """Return ``end - start`` over the trainable parameters."""
        return {
            name: end[name].double() - value.double()
            for name, value in start.items()
            if self._kinds[name] is ParameterKind.TRAINABLE
        }

    def _entry(self, name: str, coefficients: torch.Tensor) -> torch.Tensor:
        if self._kinds[name] is ParameterKind.INTEGER_BUFFER:
            return self._corners[0][name].clone()
        value = combine(coefficients, [corner[name] for corner in self._corners])
        # Outside the triangle a coefficient is negative, but a variance must not be.
        return value.clamp_(min=0) if name.endswith("running_var") else value


def _norm(update: Mapping[str, torch.Tensor]) -> float:
    return math.sqrt(inner_product(update, update))
