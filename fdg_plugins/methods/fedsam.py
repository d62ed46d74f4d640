# SPDX-License-Identifier: Apache-2.0
"""FedSAM: each local step follows the gradient at the nearby point where the loss is about largest.

Equations: ``fdg_plugins.core.moved_gradients`` -> :meth:`LocalSharpnessAware.step`.

Shapes: the ascent and all gradients have each parameter's own shape.

Participation, buffers: as under FedAvg; nothing is exchanged or kept. BatchNorm's running statistics see each batch
once, at theta_u.
"""

from dataclasses import dataclass

import torch

from fdg_plugins.core.moved_gradients import sharpness_aware_gradients
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import ComputeGradients, LocalObjective, Objective, SiteRound
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative


@dataclass(frozen=True)
class FedSAMObjective(Objective):
    """Cross entropy, minimised by sharpness-aware steps."""

    name = "sam"
    acts = ("step",)
    neutral = {"radius": 0}

    radius: NotNegative = 0.05

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
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


METHOD = method.Method(
    key="fedsam",
    title="FedSAM",
    rank=7,
    line="each local step follows the gradient at the point nearby where the loss is about largest",
    reference=method.Reference(
        "Qu, Li, Duan, Liu, Tang, Lu", "Generalized Federated Learning via Sharpness Aware Minimization", "ICML", 2022
    ),
    classes=(FedSAMObjective,),
    defaults=(method.Default(on="photographs", beside="fedomg", objective={"radius": 0.6}, source="FedOMG, Table 4"),),
    letters=(
        "θᵤ trainable parameters of site u, all together; L mean cross entropy of a batch; g its "
        "gradient; e ascent; ρ radius"
    ),
    equations=(
        method.Equation(
            "e = ρ g / (‖g‖ + 1e-7),   g = ∇L(θᵤ)", "ascent of length ρ, the norm over all trainable parameters jointly"
        ),
        method.Equation(
            "g̃ = ∇L(θᵤ + e)", "gradient of the same batch at the ascended point, with which the optimiser steps from θᵤ"
        ),
    ),
    settings=(
        method.SettingSource(
            "radius",
            symbol="ρ",
            paper="of FedSAM: not established; FedOMG's Table 4: 0.6; FedDG-GA, which compares with it: not stated",
            code="FedOMG and FL-Simulator: 0.1",
            remark=(
                "the default is our choice, 0 is FedAvg, bit for bit; an absolute length: 0.6 is large beside a "
                "pretrained ResNet's steps at 1e-3"
            ),
        ),
    ),
    differences=method.Differences(
        compared="FedOMG, FL-Simulator",
        rows=(
            method.Difference(
                "batches in BatchNorm's running statistics", code="FedOMG: three times each", ours="once, at θᵤ"
            ),
            method.Difference("clipping", code="the final gradient to norm 10, optional", ours="none"),
        ),
    ),
    combined={
        "fedomg": "reported in FedOMG's paper (Table 2), with a radius of 0.6 (Table 4)",
        "fedga": "reported in FedDG-GA's paper (Tables 1 and 2)",
    },
)
