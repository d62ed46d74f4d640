# SPDX-License-Identifier: Apache-2.0
"""What the rules of a round return or raise, checked where they are called: a plug-in may do anything.

Shapes: weights and coefficients ``[U]``, a value for each update of the round.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from fdg_plugins.calling import calling
from fdg_plugins.core.weighting import is_on_simplex
from fdg_plugins.errors import FDGError
from fdg_plugins.values import shorten


class Direction(NamedTuple):
    """A direction as coefficients ``[U]`` of the updates, float64, and the values that the method reports about it."""

    coefficients: torch.Tensor
    report: dict[str, Any]


def checked_weights(rule: object, weights: Any, count: int) -> torch.Tensor:
    """Return the weights that ``rule`` made of ``count`` updates, float64 ``[U]``; raise ``FDGError`` for others.

    They are on the simplex, or all zero.
    """
    name = f"weighting {type(rule).__name__}"
    found = _checked(name, "weights", weights, count)
    if bool(found.any()) and not is_on_simplex(found):
        total, smallest = float(found.sum()), float(found.min())
        raise FDGError(
            f"{name} returned weights that sum to {total:g}, the smallest {smallest:g}, expected weights of at least 0 "
            "that sum to one, or zeros."
        )
    return found


def checked_direction(aggregator: object, direction: Any, count: int) -> Direction:
    """Return the direction of ``aggregator`` for ``count`` updates; raise ``FDGError`` if it breaks the contract."""
    name = type(aggregator).__name__
    if not isinstance(direction, Direction):
        raise FDGError(
            f"aggregator {name}: direction returned a {type(direction).__name__}, expected a Direction of coefficients "
            "and a report."
        )
    coefficients = _checked(f"aggregator {name}", "coefficients", direction.coefficients, count)
    return Direction(coefficients, checked_report(aggregator, direction.report))


def checked_report(rule: object, report: Any) -> dict[str, Any]:
    """Return what ``rule`` reports; raise ``FDGError`` unless it is a mapping. The record judges the values."""
    if not isinstance(report, Mapping):
        raise FDGError(f"{type(rule).__name__} reports a {type(report).__name__}, expected a dict.")
    if "sites" in report:
        raise FDGError(f"{type(rule).__name__} reports 'sites', expected another name: the round's sites have it.")
    return dict(report)


def step_by(aggregator: Any, name: str, *arguments: Any) -> torch.Tensor:
    """Return the step of a parameter by ``aggregator.step_of``; raise ``FDGError`` unless it is a tensor or an array.

    Its shape is checked with those of all others.
    """
    with calling("aggregator", aggregator):
        step = aggregator.step_of(name, *arguments)
    if not isinstance(step, torch.Tensor | np.ndarray):
        raise FDGError(
            f"aggregator {type(aggregator).__name__}: step_of returned a {type(step).__name__} for {name!r}, expected "
            "a tensor."
        )
    return torch.as_tensor(step)


def _checked(rule: str, what: str, values: Any, count: int) -> torch.Tensor:
    """Return ``values`` as float64 ``[U]`` on the CPU; raise ``FDGError`` unless they are ``count`` finite numbers."""
    if not isinstance(values, torch.Tensor) or not values.is_floating_point():
        came = f"of {values.dtype}" if isinstance(values, torch.Tensor) else f"as a {type(values).__name__}"
        raise FDGError(f"{rule} returned {what} {came}, expected a tensor of torch.float64.")
    if values.shape != (count,):
        raise FDGError(
            f"{rule} returned {what} of shape {shorten(list(values.shape))}, expected [{count}], one per update."
        )
    if wrong := int((~values.isfinite()).sum()):
        raise FDGError(f"{rule} returned {what} of which {wrong} are NaN or infinite, expected finite numbers.")
    return values.detach().to("cpu", torch.float64)
