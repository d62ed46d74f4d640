# SPDX-License-Identifier: Apache-2.0
r"""Sharpness-aware gradients: those at the point near the parameters where the loss of the batch is about largest.

Reference: Foret, Kleiner, Mobahi, Neyshabur, "Sharpness-Aware Minimization for Efficiently Improving Generalization"
(SAM), ICLR 2021.

Equations, with w all trainable parameters together and L the loss of one batch:

- ``e = rho grad L(w) / (|grad L(w)|_2 + 1e-7)``, the norm over all of them jointly -> :func:`ascended`
- ``grad L(w + e)`` -> :func:`sharpness_aware_gradients`

Degenerate cases: ``rho = 0`` is the plain gradient, of one pass; a gradient of zero moves nothing, and is computed
twice. A gradient that is not finite gives one that is not.

Differences: the adaptive variant (ASAM) is not here. The pass at ``w + e`` leaves no trace in the buffers, while code
in use counts its batch in BatchNorm's running statistics too.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from fdg_plugins.core.norms import squared_norm

SMALLEST_NORM = 1e-7  # added to the norm, so that a gradient of zero divides nothing by zero


def sharpness_aware_gradients(
    model: nn.Module, compute_gradients: Callable[[], torch.Tensor], radius: float
) -> torch.Tensor:
    """Leave the gradients at ``w + e`` in ``.grad``; return the loss at ``w``.

    ``compute_gradients()`` sets the gradients of one batch's loss at the parameters as they are, in place of earlier
    ones, and returns the loss; it is called twice, or once with a ``radius`` rho of zero, which leaves the plain
    gradients to the bit. Parameters end with the bits that they had before, buffers with those of the pass at ``w``.
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
    """Move ``parameters``, each with a gradient, along these to ``w + e``, and back to the bit in the end."""
    received = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            scale = radius / (squared_norm(gradients).sqrt() + SMALLEST_NORM)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.add_(gradient * scale)
        yield
    finally:
        # Copied, not subtracted: (w + e) - e is w only up to rounding.
        _copy_back(parameters, received)


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Let passes use and change the buffers of ``model``, such as running statistics, and put them back in the end."""
    received = [buffer.detach().clone() for buffer in model.buffers()]
    try:
        yield
    finally:
        _copy_back(list(model.buffers()), received)


@torch.no_grad()
def _copy_back(tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
