# SPDX-License-Identifier: Apache-2.0
r"""The gradient of the loss *after* one step of adaptation: for an initial value from which a single step leads far.

Reference: Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic
Meta-Learning Approach" (Per-FedAvg), NeurIPS 2020.

Equations, with L_1, L_2, L_3 the losses of three parts of a batch and w all trainable parameters:

- ``w' = w - alpha grad L_1(w)`` and ``v = grad L_2(w')``, the first-order form
- ``v - alpha H_3(w) v``, the form with the Hessian H_3 of L_3 -> :func:`meta_gradients`
- ``H_3(w) v ~ (grad L_3(w + d v) - grad L_3(w - d v)) / (2 d)`` -> :func:`_hessian_product`

Shapes: parameters and gradients have each parameter's own shape.

Degenerate cases: ``alpha = 0`` is the plain gradient of the whole batch, from a single pass. A zero v stays zero. The
difference is exact where L_3 is quadratic.

Buffers: those of the pass at w; no other pass changes them.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from fdg_plugins.core.linear import squared_norm
from fdg_plugins.core.sharpness import moved, unchanged_buffers

SMALLEST_NORM = 1e-30  # of v, below which parameters move by less; float32 still has the factor
WHOLE = None
ComputePart = Callable[[int | None], torch.Tensor]
Gradients = list[torch.Tensor]


def meta_gradients(
    model: nn.Module, compute_gradients: ComputePart, alpha: float, difference: float | None = None
) -> torch.Tensor:
    """Set ``.grad`` to the gradient after a step of adaptation; return the loss before it.

    Args:
        model: its parameters are bit-identical afterwards.
        compute_gradients: replaces the gradients with those of a part of the batch (0, 1, 2; ``WHOLE``: all of it) at
            the current parameters, and returns the loss.
        alpha: the length of the step of adaptation; with 0, the gradient is that of the whole batch, to the bit.
        difference: the length by which parameters move for the product with the Hessian; None: first order.
    """
    if alpha == 0:
        return compute_gradients(WHOLE)
    loss = compute_gradients(0)
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    with unchanged_buffers(model):
        with moved(parameters, _gradients(parameters), -alpha):
            compute_gradients(1)
        v = _gradients(parameters)
        if difference is not None:
            product = _hessian_product(parameters, compute_gradients, v, difference)
            v = [one - alpha * other for one, other in zip(v, product, strict=True)]
    for parameter, gradient in zip(parameters, v, strict=True):
        parameter.grad = gradient
    return loss


def _hessian_product(
    parameters: Sequence[nn.Parameter], compute_gradients: ComputePart, v: Gradients, difference: float
) -> Gradients:
    """Return the Hessian of the third part's loss times ``v``, by a central difference."""
    factor = difference / squared_norm(v).sqrt().clamp_min(SMALLEST_NORM)  # a tensor: its value is not waited for
    found: list[Gradients] = []
    for sign in (1, -1):
        with moved(parameters, v, sign * factor):
            compute_gradients(2)
        found.append(_gradients(parameters))
    return [(forward - backward) / (2 * factor) for forward, backward in zip(*found, strict=True)]


def _gradients(parameters: Sequence[nn.Parameter]) -> Gradients:
    """Return copies of the gradients; a missing one counts as zero."""
    return [torch.zeros_like(one) if one.grad is None else one.grad.detach().clone() for one in parameters]
