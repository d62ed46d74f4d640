# SPDX-License-Identifier: Apache-2.0
r"""FedSAM: each local step follows the gradient at the nearby point where the loss is about largest.

Equations, with L the mean cross entropy of a batch; the mathematics is in ``fdg_plugins.core.sharpness``:

- ``e = rho g / (|g|_2 + 1e-7)``, ``g = grad L(theta_u)`` over all trainable parameters jointly
- ``g~ = grad L(theta_u + e)``, with which the optimiser steps from theta_u -> :meth:`LocalSharpnessAware.step`

Shapes: e and all gradients have each parameter's own shape.

Participation: as under FedAvg; nothing is exchanged and nothing is kept between rounds.

Degenerate cases: ``rho = 0`` is FedAvg, with one pass per step.

Buffers: averaged as under FedAvg; BatchNorm's running statistics see each batch once, at theta_u.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fdg_plugins.core.sharpness import sharpness_aware_gradients
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import ComputeGradients, LocalObjective, Objective, Point, SiteRound
from fdg_plugins.plugins.fields import NotNegative
from fdg_plugins.plugins.method import Default, Difference, Differences, Equation, Method, Reference, SettingSource


@dataclass(frozen=True)
class FedSAMObjective(Objective):
    """Cross entropy, minimised by sharpness-aware steps.

    Args:
        radius: rho >= 0, the length of e over all parameters together, in the units of the parameters; zero is FedAvg,
            bit for bit.
    """

    name: ClassVar[str] = "sam"
    acts: ClassVar[tuple[Point, ...]] = ("step",)
    neutral: ClassVar[Mapping[str, Any] | None] = {"radius": 0}

    radius: NotNegative = 0.05

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        self.refuse_payload(received)
        return LocalSharpnessAware(self.radius, task=site.task)


@dataclass(frozen=True)
class LocalSharpnessAware(LocalRisk):
    """The task's loss, with steps along its gradient at the ascended parameters."""

    radius: float

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        loss = sharpness_aware_gradients(model, compute_gradients, self.radius)
        optimizer.step()
        return loss


METHOD = Method(
    key="fedsam",
    title="FedSAM",
    part="sam",
    line="each local step follows the gradient at the point nearby where the loss is about largest",
    reference=Reference(
        authors="Qu, Li, Duan, Liu, Tang, Lu",
        title="Generalized Federated Learning via Sharpness Aware Minimization",
        venue="ICML",
        year=2022,
    ),
    classes=(FedSAMObjective,),
    defaults=(Default(on="photographs", beside="fedomg", objective={"radius": 0.6}, source="FedOMG, Table 4"),),
    letters=(
        "θᵤ trainable parameters of site u, all together; L mean cross entropy of a batch; g its "
        "gradient; e ascent; ρ radius"
    ),
    equations=(
        Equation(
            formula="e = ρ g / (‖g‖ + 1e-7),   g = ∇L(θᵤ)",
            meaning="ascent of length ρ, the norm over all trainable parameters jointly",
        ),
        Equation(
            formula="g̃ = ∇L(θᵤ + e)",
            meaning="gradient of the same batch at the ascended point, with which the optimiser steps from θᵤ",
        ),
    ),
    settings=(
        SettingSource(
            name="radius",
            symbol="ρ",
            paper="of FedSAM: not established; FedOMG's Table 4: 0.6; FedDG-GA, which compares with it: not stated",
            code="FedOMG and FL-Simulator: 0.1",
            remark=(
                "the default is our choice, 0 is FedAvg, bit for bit; an absolute length: 0.6 is large beside a "
                "pretrained ResNet's steps at 1e-3"
            ),
        ),
    ),
    differences=Differences(
        compared="FedOMG, FL-Simulator",
        rows=(
            Difference(
                point="batches in BatchNorm's running statistics", code="FedOMG: three times each", ours="once, at θᵤ"
            ),
            Difference(point="clipping", code="the final gradient to norm 10, optional", ours="none"),
        ),
    ),
)
