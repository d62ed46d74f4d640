# SPDX-License-Identifier: Apache-2.0
r"""Sharpness-aware gradients: the gradient at the nearby point where the loss of the batch is about largest.

Reference: Foret, Kleiner, Mobahi, Neyshabur, "Sharpness-Aware Minimization for Efficiently Improving Generalization"
(SAM), ICLR 2021.

Equations, with w all trainable parameters and L the loss of one batch:

- ``e = rho grad L(w) / (|grad L(w)|_2 + 1e-7)``, one norm over all parameters -> :func:`ascended`
- ``grad L(w + e)`` -> :func:`sharpness_aware_gradients`

Shapes: parameters, gradients and e have each parameter's own shape; P values in all.

Degenerate cases: ``rho = 0`` is the plain gradient, from a single pass. A zero gradient gives ``e = 0``. A gradient
that is not finite is passed on as it is.

Buffers: those of the pass at w; the pass at ``w + e`` does not change them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from fdg_plugins.core.linear import squared_norm

SMALLEST_NORM = 1e-7  # added to the norm: a zero gradient causes no division by zero


def sharpness_aware_gradients(
    model: nn.Module, compute_gradients: Callable[[], torch.Tensor], radius: float
) -> torch.Tensor:
    """Set ``.grad`` to the gradients at ``w + e``; return the loss at ``w``.

    ``compute_gradients()`` replaces the gradients with those of one batch's loss at the current parameters, and returns
    the loss. It is called twice, or once if the ``radius`` rho is zero, which gives the plain gradients to the bit.
    Afterwards the parameters are bit-identical to those before, and the buffers are those of the pass at ``w``.
    """
    loss = compute_gradients()
    if radius == 0:
        return loss
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    with ascended(parameters, radius), unchanged_buffers(model):
        compute_gradients()
    return loss


@contextmanager
def ascended(parameters: Sequence[nn.Parameter], radius: float) -> Iterator[None]:
    """Move ``parameters``, each with a gradient, to ``w + e``; on exit, restore them to the bit."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    with moved(parameters, gradients, radius / (squared_norm(gradients).sqrt() + SMALLEST_NORM)):
        yield


@contextmanager
def moved(
    parameters: Sequence[nn.Parameter], along: Sequence[torch.Tensor], factor: float | torch.Tensor
) -> Iterator[None]:
    """Move ``parameters`` by ``factor`` times ``along``; on exit, restore them to the bit."""
    received = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter, direction in zip(parameters, along, strict=True):
                if isinstance(factor, torch.Tensor):  # its value is not waited for
                    parameter.addcmul_(direction, factor)
                else:
                    parameter.add_(direction, alpha=factor)
        yield
    finally:  # from a copy, because (w + e) - e equals w only up to rounding
        _copy_back(parameters, received)


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Let forward passes change the buffers of ``model``, such as running statistics, and restore them on exit."""
    received = [buffer.detach().clone() for buffer in model.buffers()]
    try:
        yield
    finally:
        _copy_back(list(model.buffers()), received)


@torch.no_grad()
def _copy_back(tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
