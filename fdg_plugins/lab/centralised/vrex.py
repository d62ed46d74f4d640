# SPDX-License-Identifier: Apache-2.0
r"""V-REx: the risks of the domains are made equal, by a penalty on their variance.

Reference: Krueger, Caballero, Jacobsen, Zhang, Binas, Zhang, Le Priol, Courville, "Out-of-Distribution Generalization
via Risk Extrapolation (REx)", ICML 2021; as DomainBed has it.

Equation: minimise ``mean_e L_e + w mean_e (L_e - mean L)^2``, the variance with divisor m -> :func:`risk_variance`.

Shapes: logits ``[B, Y]`` of each of m source domains, risks L ``[m]``; the penalty is a scalar.

Degenerate cases: equal risks, or a single domain, give no penalty.

Differences from DomainBed: none known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fdg_plugins.lab.centralised.algorithm import AnnealedPenalty, Batch


def risk_variance(risks: torch.Tensor) -> torch.Tensor:
    """Return the variance of the ``risks [m]`` with divisor m, a scalar; zero for one domain.

    >>> risk_variance(torch.tensor([0.0, 2.0])).item()
    1.0
    """
    return ((risks - risks.mean()) ** 2).mean()


@dataclass(frozen=True)
class CentralisedVREx(AnnealedPenalty):
    """The mean risk plus the variance of the risks over domains.

    Args:
        strength: w after the warm-up, at least 0; zero is ERM, bit for bit. DomainBed: 10.
        warm_up: steps with w = 1, after which the optimizer restarts. DomainBed: 500 of 5001.
    """

    name: ClassVar[str] = "vrex"
    title: ClassVar[str] = "V-REx"
    early_strength: ClassVar[float] = 1.0

    strength: float = 10.0
    warm_up: int = 500

    def penalty(self, logits: Sequence[torch.Tensor], risks: torch.Tensor, batches: Sequence[Batch]) -> torch.Tensor:
        """Return the variance of the ``risks [m]``, a scalar; logits and batches are not used."""
        return risk_variance(risks)
