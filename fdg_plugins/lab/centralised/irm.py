# SPDX-License-Identifier: Apache-2.0
r"""IRM (version 1): a classifier that is optimal in every domain at once, measured by the scale of its logits.

Reference: Arjovsky, Bottou, Gulrajani, Lopez-Paz, "Invariant Risk Minimization", arXiv:1907.02893, 2019; as DomainBed
has it.

Equations: minimise ``mean_e L_e + w mean_e pen_e`` with ``pen_e = g1 g2``. g1 and g2 are the derivatives, with respect
to a scalar s = 1 that multiplies the logits, of the cross entropy of the images at even and at odd positions
-> :func:`invariance_penalty`. The product of two independent estimates is an unbiased estimate of the squared
derivative; it may be negative. The derivative has a closed form -> :func:`scale_derivative`.

Shapes: logits ``[B, Y]`` and labels ``[B]`` of one domain's batch, B at least 2; penalties and risks ``[m]``.

Degenerate cases: logits of zero give no penalty. A batch of one image is refused, because a half would be empty.

Differences from DomainBed: none known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import one_hot, softmax

from fdg_plugins.lab.centralised.algorithm import AnnealedPenalty, Batch


def scale_derivative(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the derivative of the mean cross entropy of ``s * logits`` with respect to s at s = 1, a scalar.

    For ``logits [B, Y]`` and ``labels [B]`` it is the mean over images of ``<softmax(o_i) - onehot_i, o_i>``.

    >>> round(scale_derivative(torch.tensor([[0.0, 2.0]]), torch.tensor([1])).item(), 3)
    -0.238
    """
    errors = softmax(logits, dim=1) - one_hot(labels, logits.shape[1])
    return (errors * logits).sum(dim=1).mean()


def invariance_penalty(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return ``g1 g2``, a scalar that may be negative, from one domain's ``logits [B, Y]`` and ``labels [B]``.

    B is at least 2. The images must be in random order, because those at even and at odd positions give g1 and g2.
    """
    return scale_derivative(logits[0::2], labels[0::2]) * scale_derivative(logits[1::2], labels[1::2])


@dataclass(frozen=True)
class CentralisedIRM(AnnealedPenalty):
    """The mean risk plus the mean invariance penalty of the domains.

    Args:
        strength: w after the warm-up, at least 0; zero is ERM, bit for bit. DomainBed: 100.
        warm_up: steps with w = 1, after which the optimizer restarts. DomainBed: 500 of 5001.
    """

    name: ClassVar[str] = "irm"
    title: ClassVar[str] = "IRM"
    compares_domains: ClassVar[bool] = False
    needs_labelled_images: ClassVar[bool] = True
    early_strength: ClassVar[float] = 1.0

    strength: float = 100.0
    warm_up: int = 500

    def penalty(self, logits: Sequence[torch.Tensor], risks: torch.Tensor, batches: Sequence[Batch]) -> torch.Tensor:
        """Return the mean of the domains' invariance penalties, a scalar."""
        pairs = zip(logits, batches, strict=True)
        return torch.stack([invariance_penalty(own, labels) for own, (_, labels) in pairs]).mean()
