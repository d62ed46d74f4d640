# SPDX-License-Identifier: Apache-2.0
r"""FedSAM: each local step follows the gradient at the nearby point where the loss is about largest.

For federations that want flat minima at their sites and can afford twice the work per step.

Reference: Qu, Li, Duan, Liu, Tang, Lu, "Generalized Federated Learning via Sharpness Aware Minimization" (FedSAM,
MoFedSAM), ICML 2022; SAM is that of Foret, Kleiner, Mobahi, Neyshabur, ICLR 2021.

Equations, with L the mean cross entropy of a batch; the mathematics is in ``fdg_plugins.core.sharpness``:

- ``e = rho g / (|g|_2 + 1e-7)``, ``g = grad L(theta_u)`` over all trainable parameters jointly
- ``g~ = grad L(theta_u + e)``, with which the optimiser steps from theta_u -> :meth:`LocalSharpnessAware.step`

Shapes: e and all gradients have each parameter's own shape.

Participation: as under FedAvg; nothing is exchanged and nothing is kept between rounds.

Degenerate cases: ``rho = 0`` is FedAvg, with one pass per step.

Buffers: averaged as under FedAvg; BatchNorm's running statistics see each batch once, at theta_u.

Differences: in FedOMG's released code, a batch enters the running statistics three times. Most public code clips the
final gradient to norm 10; here it is not clipped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fdg_plugins.core.sharpness import sharpness_aware_gradients
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import ComputeGradients, LocalObjective, Objective, SiteRound
from fdg_plugins.values import check_number


@dataclass(frozen=True)
class FedSAMObjective(Objective):
    """Cross entropy, minimised by sharpness-aware steps.

    Args:
        radius: rho >= 0, the length of e over all parameters together, in the units of the parameters; zero is FedAvg,
            bit for bit. FedOMG's Table 4: 0.6; its released code and FL-Simulator: 0.1. The default is our choice.
    """

    name: ClassVar[str] = "sam"
    neutral: ClassVar[Mapping[str, Any] | None] = {"radius": 0}

    radius: float = 0.05

    def __post_init__(self) -> None:
        check_number("radius", self.radius)

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        """Return the task's loss with sharpness-aware steps; raise ``SettingsError`` if anything was received."""
        self.refuse_payload(received)
        return LocalSharpnessAware(self.radius, task=site.task)


@dataclass(frozen=True)
class LocalSharpnessAware(LocalRisk):
    """The task's loss, with steps along its gradient at the ascended parameters."""

    radius: float

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        """Take one step with g~; return the loss of the batch before it, at theta_u itself."""
        loss = sharpness_aware_gradients(model, compute_gradients, self.radius)
        optimizer.step()
        return loss
