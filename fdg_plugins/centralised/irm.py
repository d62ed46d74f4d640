# SPDX-License-Identifier: Apache-2.0
r"""IRM (version 1): one classifier that is optimal in every domain at once, judged by the scale of its logits.

Reference: Arjovsky, Bottou, Gulrajani, Lopez-Paz, "Invariant Risk Minimization", arXiv:1907.02893, 2019; as DomainBed
has it.

Equations: minimise ``mean_e L_e + w mean_e pen_e``. ``pen_e = g1 g2``, where g1 and g2 are the derivatives, with
respect to a scalar s = 1 that multiplies the logits, of the cross entropy of the images at even and at odd places
-> :func:`invariance_penalty`. The product of two independent estimates is one of the squared derivative without bias;
it may be negative. The derivative has a closed form -> :func:`scale_derivative`.

Exact cases: all logits zero, no penalty. A domain's batch must hold two images or more, else a half is empty.

Differences from DomainBed: none known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import one_hot, softmax

from fdg_plugins.centralised.algorithm import Batch, Loss, State, domain_logits, domain_risks
from fdg_plugins.centralised.annealing import AnnealedPenalty
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.tasks import DEFAULT_TASK, Task


def scale_derivative(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the derivative of the mean cross entropy of ``s * logits`` with respect to s at one, a scalar.

    ``logits [B, Y]``, ``labels [B]``: it is the mean over images of ``<softmax(o_i) - onehot_i, o_i>``.
    """
    errors = softmax(logits, dim=1) - one_hot(labels, logits.shape[1])
    return (errors * logits).sum(dim=1).mean()


def invariance_penalty(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return ``g1 g2`` of one domain's ``logits [B, Y]`` and ``labels [B]``, B at least 2; the order must be random."""
    return scale_derivative(logits[0::2], labels[0::2]) * scale_derivative(logits[1::2], labels[1::2])


@dataclass(frozen=True)
class CentralisedIRM(AnnealedPenalty):
    """The mean risk and the invariance penalty of each domain.

    Args:
        strength: w after the warm-up, at least 0; zero is ERM, bit for bit. DomainBed: 100.
        warm_up: steps with w = 1, at the end of which the optimizer starts afresh. DomainBed: 500 of 5001.
    """

    name: ClassVar[str] = "irm"
    title: ClassVar[str] = "IRM"
    needs_labelled_images: ClassVar[bool] = True
    early_strength: ClassVar[float] = 1.0

    strength: float = 100.0
    warm_up: int = 500

    def loss(
        self,
        model: ExtractorClassifier,
        batches: Sequence[Batch],
        step: int,
        state: State,
        task: Task = DEFAULT_TASK,
    ) -> Loss:
        """Return mean risk and penalty."""
        logits = domain_logits(model, batches)
        risks = domain_risks(logits, batches, task)
        value = risks.mean()
        if strength := self.strength_at(step):
            pairs = zip(logits, batches, strict=True)
            penalties = torch.stack([invariance_penalty(own, labels) for own, (_, labels) in pairs])
            value = value + strength * penalties.mean()
        return Loss(value, risks.detach(), state)
