# SPDX-License-Identifier: Apache-2.0
r"""Predictions of a classifier whose weights are perturbed against it, which FedLGF takes as targets.

Reference: Yan, Guo, "Local and Global Flatness for Federated Domain Generalization" (FedLGF), ECCV 2024, as its
authors' code computes it.

Functions, with p the predictions of the model that is trained and p(s delta) those of the perturbed classifier:

- ``W + s delta`` ("weight"), or ``U diag(relu(S + s delta)) V'`` with ``W = U diag(S) V'`` ("singular"), for each
  linear layer; biases stay -> :class:`Perturbed`
- ``delta0`` random, of unit length; ``dhat = grad_delta KL(p || p(s0 delta0))``, of unit length; the target is
  ``p(s1 dhat)`` -> :func:`adversarial_predictions`
- ``KL(q || p)``, mean over the batch, q constant -> :func:`divergence_from`

Shapes: features ``[B, D]``; predictions and logits ``[B, Y]``; a weight ``[O, I]``; delta of its shape, each row of
unit length, or ``[min(O, I)]``.

Degenerate cases: ``s1 = 0`` gives p(0) up to rounding, exactly for "weight". A gradient of zero gives p(0) too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import kl_div, normalize

from fdg_plugins.randomness import on_device

Kind = Literal["weight", "singular"]
Draw = Callable[[tuple[int, ...]], torch.Tensor]
Deltas = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Perturbed:
    """A classifier's parameters, detached, and how those of its linear layers are perturbed; keeps no graph.

    Args:
        classifier: a linear layer, or a sequence of layers.
        parameters: all its parameters, by name.
        weights: the weights ``[O, I]`` of its linear layers, by name.
        factors: for the kind "singular", the decomposition ``U diag(S) V'`` of each: U ``[O, K]``, S ``[K]``, V'
            ``[K, I]``; empty for "weight".
    """

    classifier: nn.Module
    parameters: Mapping[str, torch.Tensor]
    weights: Mapping[str, torch.Tensor]
    factors: Mapping[str, tuple[torch.Tensor, ...]]

    @classmethod
    def of(cls, classifier: nn.Module, kind: Kind) -> "Perturbed":
        """Return the classifier as it is now; later changes of its parameters in place are seen by "weight" alone."""
        parameters = {name: value.detach() for name, value in classifier.named_parameters()}
        layers = [name for name, module in classifier.named_modules() if isinstance(module, nn.Linear)]
        weights = {name: parameters[name] for name in (f"{layer}.weight".lstrip(".") for layer in layers)}
        factors: dict[str, tuple[torch.Tensor, ...]] = {}
        if kind == "singular":
            factors = {name: torch.linalg.svd(one, full_matrices=False) for name, one in weights.items()}
        return cls(classifier, parameters, weights, factors)

    def logits(self, features: torch.Tensor, deltas: Deltas, size: float) -> torch.Tensor:
        """Return the logits ``[B, Y]`` of the classifier perturbed by ``size`` times ``deltas``."""
        moved = {name: self._moved(name, delta, size) for name, delta in deltas.items()}
        logits: torch.Tensor = functional_call(self.classifier, {**self.parameters, **moved}, (features,))
        return logits

    def unit(self, deltas: Deltas) -> dict[str, torch.Tensor]:
        """Return perturbations of unit length: each row of a weight, or all singular values of a layer together."""
        return {name: normalize(delta, dim=-1) for name, delta in deltas.items()}

    def drawn(self, draw: Draw) -> dict[str, torch.Tensor]:
        """Return random perturbations of unit length; ``draw`` returns random numbers of a given shape."""
        like = {name: values for name, (_, values, _) in self.factors.items()} or self.weights
        drawn = {name: on_device(draw(tuple(value.shape)), value.device) for name, value in like.items()}
        return self.unit({name: drawn[name].to(value.dtype) for name, value in like.items()})

    def _moved(self, name: str, delta: torch.Tensor, size: float) -> torch.Tensor:
        if not self.factors:
            return self.weights[name] + size * delta
        left, values, right = self.factors[name]
        return left * (values + size * delta).relu() @ right


def adversarial_predictions(
    perturbed: Perturbed, features: torch.Tensor, reference: torch.Tensor, draw: Draw, probing: float, size: float
) -> torch.Tensor:
    """Return the predictions ``[B, Y]`` of a classifier perturbed to where they depart most from ``reference``.

    They have no graph.

    Args:
        perturbed: the classifier.
        features: its inputs ``[B, D]``.
        reference: predictions ``[B, Y]``, of this classifier or of another.
        draw: returns random numbers of a given shape, for the perturbation at which the gradient is taken.
        probing: s0, the length of that perturbation.
        size: s1, the length of the final one.
    """
    features = features.detach()
    start = {name: delta.requires_grad_() for name, delta in perturbed.drawn(draw).items()}
    with torch.enable_grad():
        divergence = divergence_from(reference.detach(), perturbed.logits(features, start, probing))
        gradients = torch.autograd.grad(divergence, list(start.values()))
    worst = perturbed.unit(dict(zip(start, gradients, strict=True)))
    with torch.no_grad():
        return perturbed.logits(features, worst, size).softmax(dim=1)


def divergence_from(targets: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Return ``KL(q || p)``, the mean over the batch, a scalar; q are ``targets [B, Y]``, p the softmax of ``logits``.

    >>> divergence_from(torch.tensor([[0.5, 0.5]]), torch.zeros(1, 2)).item()
    0.0
    """
    return kl_div(logits.log_softmax(dim=1), targets, reduction="batchmean")
