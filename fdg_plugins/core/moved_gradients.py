# SPDX-License-Identifier: Apache-2.0
r"""Gradients at moved parameters: where the loss is about largest nearby, and after one step of adaptation.

References: Foret, Kleiner, Mobahi, Neyshabur, "Sharpness-Aware Minimization for Efficiently Improving Generalization"
(SAM), ICLR 2021; Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach" (Per-FedAvg), NeurIPS 2020.

Equations, with w all trainable parameters, L the loss of one batch and L_1, L_2, L_3 those of three parts of it:

- ``e = rho grad L(w) / (|grad L(w)|_2 + 1e-7)``, one norm over all parameters, and
  ``grad L(w + e)`` -> :func:`sharpness_aware_gradients`
- ``w' = w - alpha grad L_1(w)`` and ``v = grad L_2(w')``, the first-order form, or ``v - alpha H_3(w) v``, with the
  Hessian H_3 of L_3 -> :func:`meta_gradients`
- ``H_3(w) v ~ (grad L_3(w + d v) - grad L_3(w - d v)) / (2 d)`` -> :func:`_hessian_product`

Shapes: parameters, gradients and e have each parameter's own shape; P values in all.

Degenerate cases: ``rho = 0`` and ``alpha = 0`` are the plain gradient, from a single pass. A zero gradient gives
``e = 0``, a zero v stays zero. A gradient that is not finite is passed on. The difference is exact for a quadratic L_3.

Buffers: those of the pass at w; no other pass changes them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from fdg_plugins.core.linear import squared_norm

SMALLEST_NORM = 1e-7  # added to the norm: a zero gradient causes no division by zero
SMALLEST_V = 1e-30  # norm of v, below which parameters move by less; float32 still has the factor
WHOLE = None
ComputePart = Callable[[int | None], torch.Tensor]
Gradients = list[torch.Tensor]


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
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    factor = radius / (squared_norm(gradients).sqrt() + SMALLEST_NORM)
    with moved(parameters, gradients, factor), unchanged_buffers(model):
        compute_gradients()
    return loss


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
    factor = difference / squared_norm(v).sqrt().clamp_min(SMALLEST_V)  # a tensor: its value is not waited for
    found: list[Gradients] = []
    for sign in (1, -1):
        with moved(parameters, v, sign * factor):
            compute_gradients(2)
        found.append(_gradients(parameters))
    return [(forward - backward) / (2 * factor) for forward, backward in zip(*found, strict=True)]


def _gradients(parameters: Sequence[nn.Parameter]) -> Gradients:
    """Return copies of the gradients; a missing one counts as zero."""
    return [torch.zeros_like(one) if one.grad is None else one.grad.detach().clone() for one in parameters]


@contextmanager
def moved(
    parameters: Sequence[nn.Parameter], along: Sequence[torch.Tensor], factor: float | torch.Tensor
) -> Iterator[None]:
    """Move ``parameters`` by ``factor`` times ``along``; on exit, restore them to the bit."""
    received = [parameter.detach().clone() for parameter in parameters]
    try:
        _move(parameters, along, factor)
        yield
    finally:  # from a copy, because (w + e) - e equals w only up to rounding
        _copy_back(parameters, received)


@torch.no_grad()
def _move(parameters: Sequence[nn.Parameter], along: Sequence[torch.Tensor], factor: float | torch.Tensor) -> None:
    for parameter, direction in zip(parameters, along, strict=True):
        if isinstance(factor, torch.Tensor):  # its value is not waited for
            parameter.addcmul_(direction, factor)
        else:
            parameter.add_(direction, alpha=factor)


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
