# SPDX-License-Identifier: Apache-2.0
r"""IGA: the gradients of all domains are drawn to their mean, so that no domain pulls the network its own way.

Reference: Koyama, Yamaguchi, "When is invariance useful in an Out-of-Distribution Generalization problem ?",
arXiv:2008.01883, 2020; as DomainBed has it. FedIIR is its federated cousin, on the classifier's gradients alone.

Equation: minimise ``mean_e L_e + w sum_e |grad L_e - gbar|^2``, over all parameters, gbar the mean gradient
-> :func:`gradient_spread`.

Exact cases: one domain, or the same batch in every domain, has no penalty.

Cost: the penalty's gradient is of second order through the whole network: a backward pass for each domain whose graph
is kept, and one through all of these.

Differences: DomainBed passes the domains through the network one after the other, here they pass together (see
``algorithm``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fdg_plugins.centralised.algorithm import Algorithm, Batch, Loss, State, domain_logits, domain_risks
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.objective import check_number


def gradient_spread(risks: torch.Tensor, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return ``sum_e |grad L_e - gbar|^2`` of the ``risks [m]`` with respect to ``parameters``, a scalar.

    It can be differentiated. gbar is a constant in it: its own derivative is the sum of all ``grad L_e - gbar``, zero.
    """
    by_risk = [torch.autograd.grad(risk, parameters, create_graph=True) for risk in risks]
    spread = risks.new_zeros(())
    for gradients in zip(*by_risk, strict=True):
        stacked = torch.stack(gradients)
        spread = spread + (stacked - stacked.mean(dim=0).detach()).square().sum()
    return spread


@dataclass(frozen=True)
class CentralisedIGA(Algorithm):
    """The mean risk and how far the domains' gradients lie from their mean.

    Args:
        strength: w, at least 0; zero is ERM, bit for bit. DomainBed: 1000.
    """

    name: ClassVar[str] = "iga"
    title: ClassVar[str] = "IGA"

    strength: float = 1000.0

    def __post_init__(self) -> None:
        check_number("strength", self.strength)

    def loss(self, model: ExtractorClassifier, batches: Sequence[Batch], step: int, state: State) -> Loss:
        """Return mean risk and penalty."""
        risks = domain_risks(domain_logits(model, batches), batches)
        value = risks.mean()
        if self.strength:
            value = value + self.strength * gradient_spread(risks, tuple(model.parameters()))
        return Loss(value, risks.detach(), state)
