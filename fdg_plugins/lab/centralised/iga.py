# SPDX-License-Identifier: Apache-2.0
r"""IGA: the gradients of all domains are pulled towards their mean, so the domains agree on a direction.

Reference: Koyama, Yamaguchi, "When is invariance useful in an Out-of-Distribution Generalization problem ?",
arXiv:2008.01883, 2020; as DomainBed has it. FedIIR is its federated counterpart, on the classifier's gradients only.

Equation: minimise ``mean_e L_e + w sum_e |grad L_e - gbar|^2``, over all parameters, gbar the mean gradient
-> :func:`gradient_spread`.

Shapes: risks L ``[m]``; a gradient has each parameter's own shape, P values in all; the penalty is a scalar.

Degenerate cases: one domain, or the same batch in every domain, gives no penalty.

Cost: the penalty needs second-order gradients through the whole network: one backward pass per domain whose graph is
kept, and one through all of these graphs. Attention is computed by its formula, because torch has no second derivatives
of its faster kernels. A network with an operation without second derivatives, such as MobileNetV3's, ends the run with
torch's error.

Differences: DomainBed passes the domains through the network one after another; here they pass together (see
``algorithm``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from fdg_plugins.errors import check_number
from fdg_plugins.lab.centralised.algorithm import Algorithm, Batch, Loss, State, all_images, by_domain, domain_risks
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.tasks import DEFAULT_TASK, Task


def gradient_spread(risks: torch.Tensor, parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return ``sum_e |grad L_e - gbar|^2``, a differentiable scalar.

    gbar is treated as a constant. This is exact, because the terms through gbar sum to zero.

    Args:
        risks: L ``[m]``, with their graph, which is kept. One domain gives zero.
        parameters: the tensors to differentiate with respect to; every risk must depend on each of them.
    """
    by_risk = [torch.autograd.grad(risk, parameters, create_graph=True) for risk in risks]
    spread = risks.new_zeros(())
    for gradients in zip(*by_risk, strict=True):
        stacked = torch.stack(gradients)
        spread = spread + (stacked - stacked.mean(dim=0).detach()).square().sum()
    return spread


@dataclass(frozen=True)
class CentralisedIGA(Algorithm):
    """The mean risk plus the squared deviation of the domains' gradients from their mean.

    Args:
        strength: w, at least 0; zero is ERM, bit for bit. DomainBed: 1000.
    """

    name: ClassVar[str] = "iga"
    title: ClassVar[str] = "IGA"
    neutral: ClassVar[Mapping[str, Any] | None] = {"strength": 0.0}

    strength: float = 1000.0

    def __post_init__(self) -> None:
        check_number("strength", self.strength)

    def loss(
        self, model: ExtractorClassifier, batches: Sequence[Batch], step: int, state: State, task: Task = DEFAULT_TASK
    ) -> Loss:
        """Return ``mean_e L_e`` plus w times the spread of the gradients over all parameters."""
        if not self.strength:
            return super().loss(model, batches, step, state, task)
        with sdpa_kernel(SDPBackend.MATH):
            risks = domain_risks(by_domain(model(all_images(batches)).float(), batches), batches, task)
        trained = tuple(parameter for parameter in model.parameters() if parameter.requires_grad)
        return Loss(risks.mean() + self.strength * gradient_spread(risks, trained), risks.detach(), state)
