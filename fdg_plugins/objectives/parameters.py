# SPDX-License-Identifier: Apache-2.0
"""Values with one tensor per trainable parameter, by the parameters' names in the state dict and with their shapes."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from fdg_plugins.objectives.exchange import Reader

Shapes = Mapping[str, Sequence[int]]


def parameter_shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the trainable parameters, by name."""
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def read_per_parameter(reader: Reader, tensors: Any, shapes: Shapes) -> dict[str, torch.Tensor]:
    """Return ``tensors`` as float32, with exactly the names and shapes of ``shapes``; refuse what does not fit."""
    found = reader.fields(tensors, shapes)
    return {name: reader.numbers(name, found[name], shape) for name, shape in shapes.items()}
