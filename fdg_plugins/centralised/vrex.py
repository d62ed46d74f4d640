# SPDX-License-Identifier: Apache-2.0
r"""V-REx: the risks of the domains are made equal, by a penalty on their variance.

Reference: Krueger, Caballero, Jacobsen, Zhang, Binas, Zhang, Le Priol, Courville, "Out-of-Distribution Generalization
via Risk Extrapolation (REx)", ICML 2021; as DomainBed has it.

Equation: minimise ``mean_e L_e + w mean_e (L_e - mean L)^2``: the population's variance, with the divisor m
-> :func:`risk_variance`.

Exact cases: equal risks, or one domain, have no penalty; risks of 0 and 2 have the penalty 1.

Differences from DomainBed: none known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fdg_plugins.centralised.algorithm import Batch, Loss, State, domain_logits, domain_risks
from fdg_plugins.centralised.annealing import AnnealedPenalty
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.tasks import DEFAULT_TASK, Task


def risk_variance(risks: torch.Tensor) -> torch.Tensor:
    """Return the variance of the ``risks [m]`` with divisor m, a scalar."""
    return ((risks - risks.mean()) ** 2).mean()


@dataclass(frozen=True)
class CentralisedVREx(AnnealedPenalty):
    """The mean risk and the variance of the risks.

    Args:
        strength: w after the warm-up, at least 0; zero is ERM, bit for bit. DomainBed: 10.
        warm_up: steps with w = 1, at the end of which the optimizer starts afresh. DomainBed: 500 of 5001.
    """

    name: ClassVar[str] = "vrex"
    title: ClassVar[str] = "V-REx"
    early_strength: ClassVar[float] = 1.0

    strength: float = 10.0
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
        risks = domain_risks(domain_logits(model, batches), batches, task)
        value = risks.mean()
        if strength := self.strength_at(step):
            value = value + strength * risk_variance(risks)
        return Loss(value, risks.detach(), state)
