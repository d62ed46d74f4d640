# SPDX-License-Identifier: Apache-2.0
r"""Fishr: the variances of the classifier's gradients, coordinate by coordinate, are made equal across domains.

Reference: Ramé, Dancette, Cord, "Fishr: Invariant Gradient Variances for Out-of-Distribution Generalization", ICML
2022; the authors' code and DomainBed.

Equations:

- the gradient of each image's cross entropy with respect to the classifier -> :func:`head_gradients`
- ``v_e [P]``, its variance over domain e's batch, with divisor B -> :func:`gradient_variances`
- averaged over steps, ``e <- ema e + (1 - ema) v``, and used as ``e / (1 - ema)``, so that the gradient through v does
  not depend on ema
- minimise ``mean_e L_e + w mean_e mean_j (v_ej - vbar_j)^2``, vbar the mean over domains -> :func:`variance_spread`.
  w is zero during the warm-up, in which the averages are already updated.

Shapes: m domains, B images per batch, P parameters of the classifier: for a linear one, Y D weights and Y biases.
Gradients ``[m B, P]``, in float32 also under autocast; variances and averages, which are the state, ``[m, P]``.

Degenerate cases: one domain, or identical batches in the first step, give no penalty.

Differences: the authors' code computes per-image gradients with BackPACK; here they are computed as the outer products
that they are for linear layers. FedOMG's paper restates Fishr over the whole network and without the average; this file
follows the authors' own form, on the classifier only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import nn

from fdg_plugins.lab.centralised.algorithm import (
    AnnealedPenalty,
    Batch,
    Loss,
    State,
    WarmUp,
    all_images,
    by_domain,
    domain_risks,
)
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.plugins.fields import NotNegative
from fdg_plugins.tasks import DEFAULT_TASK, Task

AVERAGES = "variance_averages"


def head_gradients(
    head: nn.Module, features: torch.Tensor, labels: torch.Tensor, task: Task = DEFAULT_TASK
) -> torch.Tensor:
    """Return each image's gradient of the cross entropy with respect to the parameters of ``head``, ``[B, P]``.

    P runs over the linear layers: the weight of each, row by row, then its bias. The result is differentiable with
    respect to ``features`` and the parameters.

    ``head`` is a linear layer with bias, or a sequence of such layers and layers without parameters; its inputs, the
    ``features``, are ``[B, D]``, the ``labels`` ``[B]``; ``task`` defines the summed loss.
    """
    layers = list(head) if isinstance(head, nn.Sequential) else [head]
    values, seen = features, []
    for layer in layers:
        inputs, values = values, layer(values)
        if isinstance(layer, nn.Linear):
            seen.append((inputs, values))
    # The head treats images independently, so a row of the sum's gradient, at a layer's outputs, is one image's.
    total = task.summed_loss(values, labels)
    errors = torch.autograd.grad(total, [outputs for _, outputs in seen], create_graph=True)
    # For W x + b with the gradient d at its output, the gradients are d x' for W and d for b.
    parts = [
        torch.cat([torch.einsum("bo,bi->boi", error, inputs).flatten(1), error], dim=1)
        for error, (inputs, _) in zip(errors, seen, strict=True)
    ]
    return torch.cat(parts, dim=1)


def gradient_variances(gradients: torch.Tensor, batches: Sequence[Batch]) -> torch.Tensor:
    """Return the variance of each coordinate of ``gradients [m B, P]`` over each domain's batch, ``[m, P]``.

    The divisor is B, so a batch of one image has variance zero.
    """
    return torch.stack([own.var(dim=0, correction=0) for own in by_domain(gradients, batches)])


def variance_spread(variances: torch.Tensor) -> torch.Tensor:
    """Return ``mean_e mean_j (v_ej - vbar_j)^2``, a scalar, from ``variances [m, P]``; zero for one domain."""
    return (variances - variances.mean(dim=0)).square().mean()


@dataclass(frozen=True)
class CentralisedFishr(AnnealedPenalty):
    """The mean risk plus the squared deviation of the domains' gradient variances from their mean.

    Args:
        strength: w after the warm-up, at least 0; zero is ERM, bit for bit. DomainBed: 1000.
        warm_up: steps without the penalty, after which the optimizer restarts. DomainBed: 1500 of 5001.
        ema: decay of the averages, in [0, 1); zero uses the current batch only. DomainBed: 0.95.
    """

    name: ClassVar[str] = "fishr"
    title: ClassVar[str] = "Fishr"
    needs_labelled_images: ClassVar[bool] = True
    early_strength: ClassVar[float] = 0.0

    strength: NotNegative = 1000.0
    warm_up: WarmUp = 1500
    # With 1, the averages would never learn anything.
    ema: Annotated[float, Field(ge=0, le=1 - 1e-9, allow_inf_nan=False)] = 0.95

    def begin(self, model: ExtractorClassifier, num_domains: int) -> State:
        """Return the averages ``[m, P]`` before the first step, zeros on the device of the classifier."""
        parameters = list(model.classifier.parameters())
        size = sum(parameter.numel() for parameter in parameters)
        return {AVERAGES: torch.zeros(num_domains, size, device=parameters[0].device)}

    def loss(
        self, model: ExtractorClassifier, batches: Sequence[Batch], step: int, state: State, task: Task = DEFAULT_TASK
    ) -> Loss:
        """Return the mean risk plus w(t) times the spread of the averaged variances, and the new averages.

        During the warm-up only the averages change, and no gradient is computed through them. With a strength of zero
        they do not change either.
        """
        features = model.features(all_images(batches))
        risks = domain_risks(by_domain(model.classifier(features).float(), batches), batches, task)
        if not self.strength:
            return Loss(risks.mean(), risks.detach(), state)
        strength = self.strength_at(step)
        labels = torch.cat([labels for _, labels in batches])
        with torch.autocast(features.device.type, enabled=False):
            inputs = (features if strength else features.detach()).float()
            variances = gradient_variances(head_gradients(model.classifier, inputs, labels, task), batches)
        averages = self.ema * state[AVERAGES] + (1 - self.ema) * variances
        value = risks.mean()
        if strength:
            value = value + strength * variance_spread(averages / (1 - self.ema))
        return Loss(value, risks.detach(), {AVERAGES: averages.detach()})
