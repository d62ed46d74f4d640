# SPDX-License-Identifier: Apache-2.0
r"""Fish: one inner step per domain in turn, then a step part of the way, which favours gradients that agree.

Reference: Shi, Seely, Torr, Siddharth, Hannun, Usunier, Synnaeve, "Gradient Matching for Domain Generalization", ICLR
2022, Algorithm 1: a first-order surrogate of
``mean_e L_e - gamma 2/(m(m-1)) sum_{i<j} <grad L_i, grad L_j>``.

Equations, per step: from theta, one optimizer step on each domain's ``L_e`` in turn gives theta'; then
``theta <- theta + eps (theta' - theta)`` -> :func:`interpolate`.

Shapes: theta and theta' have each parameter's own shape; risks L ``[m]``, each before the domain's own inner step.

Degenerate cases: ``eps = 1`` ends at theta', ``eps = 0`` leaves the parameters unchanged. With plain SGD and constant
gradients g_e, theta moves by ``-eps eta sum_e g_e``, which is as far as ``m eps`` steps of ERM.

Buffers: only parameters are interpolated; BatchNorm's statistics are those after the inner steps.

Differences: the paper draws the order of the domains in every step; DomainBed and this file keep it fixed. The authors'
code and DomainBed interpolate the whole state dict, statistics included. The optimizer's moments persist from step to
step, as in both. The authors' warm-up with ERM is left out, as in DomainBed. The authors' eps is 0.01/m to 0.15/15,
DomainBed's 0.5.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fdg_plugins.errors import check_number
from fdg_plugins.lab.centralised.algorithm import Algorithm, Batch, ComputeGradients
from fdg_plugins.models import ExtractorClassifier


@torch.no_grad()
def interpolate(parameters: Iterable[torch.Tensor], before: Iterable[torch.Tensor], fraction: float) -> None:
    """Set ``parameters`` in place to ``before + fraction * (parameters - before)``, without gradient.

    Args:
        parameters: tensors of any shapes.
        before: their earlier values, in the same order and with the same shapes.
        fraction: in [0, 1]; 0 restores ``before``, 1 leaves ``parameters``, both exactly.
    """
    for parameter, start in zip(parameters, before, strict=True):
        parameter.copy_(torch.lerp(start, parameter, fraction))


@dataclass(frozen=True)
class CentralisedFish(Algorithm):
    """One inner step per domain in turn, then a fraction of the way from the start to where they end.

    The loss of an inner step is the risk of that domain alone, so BatchNorm sees one domain at a time.

    Args:
        meta_step: eps, in [0, 1], the fraction of the way; zero never moves the parameters. DomainBed: 0.5.
    """

    name: ClassVar[str] = "fish"
    title: ClassVar[str] = "Fish"
    compares_domains: ClassVar[bool] = False

    meta_step: float = 0.5

    def __post_init__(self) -> None:
        check_number("meta_step", self.meta_step, at_most=1.0)

    def update(
        self,
        model: ExtractorClassifier,
        batches: Sequence[Batch],
        compute_gradients: ComputeGradients,
        optimizer: torch.optim.Optimizer,
    ) -> torch.Tensor:
        """Take one step with ``model``; return each domain's risk before its own inner step, ``[m]``, detached.

        ``compute_gradients`` and the optimizer are called once per domain, in the order of ``batches``. The step needs
        a copy of all parameters.
        """
        before = [parameter.detach().clone() for parameter in model.parameters()]
        risks = []
        for batch in batches:
            risks.append(compute_gradients([batch]))
            optimizer.step()
        interpolate(model.parameters(), before, self.meta_step)
        return torch.cat(risks)
