# SPDX-License-Identifier: Apache-2.0
"""FedSAM: each local step follows the gradient at the nearby point where the loss is about largest.

Choose it if the sites should find flat minima and can afford twice the work per step. The radius is an absolute length
over all parameters: too large a value prevents learning, above all from random initial weights.

Participation: as under FedAvg. Nothing is exchanged and nothing is kept, so absent and new sites need no rule.

Buffers: averaged as under FedAvg; BatchNorm's running statistics see each batch once, at the unperturbed parameters.

Cost: two forward and two backward passes per step; a copy of parameters and buffers during the second.

Equation: ``e = radius g / (|g| + 1e-7)`` with ``g = grad L(theta_u)``; the optimiser steps from theta_u with
``grad L(theta_u + e)``. Both are over all P trainable parameters as one vector; nothing more than the update is sent.

Settings: the same ``radius`` disturbs a longer parameter vector less, so a value does not carry over from one network
to another. From scratch begin near 0.05 and watch the training loss of the first rounds, which hardly falls where the
radius is too large. The ascent follows the gradient of one batch: small batches make it noisy.

What to watch: momentum averages the ascended gradients, as in FedOMG's code. In training mode BatchNorm normalises the
second pass by the statistics that the batch has at the ascended point; only the running ones ignore it.

Paper or code: the paper's own radius is not established. FedOMG's table is the source where FedOMG is the direction.

Together: any weighting and direction, FedNova's too: the number of steps does not change.
"""

from fdg_plugins.plugins.method import (
    Default,
    Difference,
    Differences,
    Equation,
    Method,
    Reference,
    SettingSource,
    Together,
)

METHOD = Method(
    key="fedsam",
    title="FedSAM",
    part="sam",
    part_title="SAM",
    rank=7,
    line="each local step follows the gradient at the point nearby where the loss is about largest",
    reference=Reference(
        authors="Qu, Li, Duan, Liu, Tang, Lu",
        title="Generalized Federated Learning via Sharpness Aware Minimization",
        venue="ICML",
        year=2022,
    ),
    acts=("step",),
    objective="fdg_plugins.objectives.fedsam:FedSAMObjective",
    defaults=(Default(on="photographs", beside="fedomg", objective={"radius": 0.6}, source="FedOMG, Table 4"),),
    in_composition=(
        "The sites take sharpness-aware steps; weights and direction see no more than the updates that follow."
    ),
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
    exact=(
        "radius 0 is FedAvg, bit for bit, in one pass per step.",
        "Of a/2 ‖w‖² the gradient is a w (1 + ρ / ‖w‖).",
        "A gradient of zero moves nothing.",
        "Parameters come back from the ascent with the bits that they had; buffers are those of the pass before it.",
    ),
    differences=Differences(
        compared="FedOMG, FL-Simulator",
        rows=(
            Difference(
                point="batches in BatchNorm's running statistics",
                paper="not established",
                code="FedOMG: three times each",
                ours="once, at θᵤ",
            ),
            Difference(
                point="clipping", paper="not established", code="the final gradient to norm 10, optional", ours="none"
            ),
            Difference(
                point="adaptive variant (ASAM)", paper="–", code="FedOMG: there, switched off", ours="not there"
            ),
        ),
    ),
    together=(
        Together(method="fedomg", source="reported in FedOMG's paper (Table 2), with a radius of 0.6 (Table 4)"),
        Together(method="fedga", source="reported in FedDG-GA's paper (Tables 1 and 2)"),
    ),
)
