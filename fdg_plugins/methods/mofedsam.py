# SPDX-License-Identifier: Apache-2.0
"""MoFedSAM: each local step mixes FedSAM's gradient with the mean descent of all sites in the previous round.

Choose it if FedSAM's sites drift apart: the common direction keeps them together. It is defined for plain SGD, and a
job with momentum at the sites is refused.

Participation: the mean is over the sites whose updates were used, each with the same weight. An absent site does not
enter, and a new one receives the mean of the others. In the first round the mean counts as zero.

Buffers: averaged as under FedAvg; the mean does not include them.

Cost: twice the work per step, and a broadcast as large as the trainable parameters.

Equation: ``theta_u <- theta_u - eta_u (beta g~ + (1 - beta) m)``, ``m = - mean_u Delta_u / (tau_u eta_u)``. Down comes
m, P values in the parameters' own shapes; up goes one number, ``tau_u eta_u``.

Settings: a constant gradient is its own fixed point, so ``beta`` need not be balanced by the learning rate; only the
first steps are shorter, those of round r, from 0, by the factor ``1 - (1 - beta)^(r + 1)``. A small beta trusts the
last round, whose sites may have been others. ``radius`` 0.6 is for pretrained networks; from scratch try 0.05.

What to watch: m is as old as a round, and at the learning rate's drop it still has the scale of a gradient, because it
is divided by each site's own rate. One site alone steps along an average of its own past. Weight decay enters a second
time through m.

Paper or code: that FedOMG's Table 4 means this beta is a reading of the table; its code has plain SAM with momentum.

Together: any weighting and direction, neither of which changes m. SGD without momentum is required and all parameters
must travel. The server needs every update in memory, so FLARE's offload to disk is refused. Differential privacy
refuses the step length.
"""

from fdg_plugins.plugins.method import (
    Default,
    Difference,
    Differences,
    Equation,
    Leaving,
    Method,
    Reference,
    SettingSource,
)

METHOD = Method(
    key="mofedsam",
    title="MoFedSAM",
    part="mosam",
    part_title="MoSAM",
    rank=8,
    line="FedSAM's gradient in each local step, mixed with what all sites did in the last round",
    reference=Reference(
        authors="Qu, Li, Duan, Liu, Tang, Lu",
        title="Generalized Federated Learning via Sharpness Aware Minimization",
        venue="ICML",
        year=2022,
    ),
    acts=("step",),
    objective="fdg_plugins.objectives.mofedsam:MoFedSAMObjective",
    defaults=(
        Default(protocol={"momentum": 0.0, "keep_momentum": False}, source="MoFedSAM, stated for plain SGD"),
        Default(
            on="segmentation",
            protocol={"optimizer": "sgd", "learning_rate": 0.05},
            source="ours: SGD where others use Adam; the rate was not tuned",
        ),
        Default(objective={"radius": 0.05}, source="ours: as FedSAM's; from scratch, 0.6 stays at chance"),
        Default(objective={"beta": 0.6}, source="FedOMG, Table 4"),
        Default(on="photographs", objective={"radius": 0.6}, source="FedOMG, Table 4"),
    ),
    in_composition=(
        "The sites step with m of the updates before; weights and direction see no more than the "
        "updates that follow, and m is the same under any of them."
    ),
    letters=(
        "θᵤ trainable parameters of site u; Δᵤ its update (local − global); τᵤ its steps; ηᵤ its "
        "learning rate; g̃ FedSAM's gradient; m mean descent of the last round; ρ radius; β beta"
    ),
    equations=(
        Equation(
            formula="θᵤ ← θᵤ − ηᵤ (β g̃ + (1 − β) m)",
            meaning="local step, m being fixed for the round; weight decay is the optimiser's, beside it",
        ),
        Equation(
            formula="m ← − meanᵤ Δᵤ / (τᵤ ηᵤ)",
            meaning="at the server, over the sites of the round, each counting the same; zero in the first round",
        ),
    ),
    settings=(
        SettingSource(
            name="radius",
            symbol="ρ",
            paper="of MoFedSAM: not established; FedOMG's Table 4: 0.6",
            code="FL-Simulator: 0.1",
            remark="0 takes the plain gradient in place of g̃",
        ),
        SettingSource(
            name="beta",
            symbol="β",
            paper="of MoFedSAM: not established; FedOMG's Table 4: 0.6, and that it is this beta is not established",
            code="FL-Simulator: 0.1 (named alpha); FedOMG: none",
            remark="above 0, at most 1, which is FedSAM, bit for bit",
        ),
    ),
    exact=(
        "beta 1 is FedSAM, bit for bit; with radius 0 besides, FedAvg.",
        "Round 0 sends nothing down; m counts as zero, so that its steps are FedSAM's times β.",
        "One site, one full-batch step, ρ = 0, plain SGD: directions are dᵣ = β gᵣ + (1 − β) dᵣ₋₁.",
        "A round without usable reports leaves m; a new site is sent what the others did.",
    ),
    differences=Differences(
        compared="FL-Simulator, FedOMG",
        rows=(
            Difference(
                point="momentum in FedOMG's rows",
                paper="a momentum parameter of 0.6 (FedOMG's Table 4)",
                code="FedOMG: plain SAM with SGD, momentum 0.9, no beta",
                ours="fedsam without and mofedsam with it",
            ),
            Difference(
                point="momentum of the optimiser",
                paper="not established",
                code="FedOMG: 0.9",
                ours="refused: m would lose a gradient's scale",
            ),
            Difference(
                point="weight decay",
                paper="not established",
                code="not established",
                ours=(
                    "the optimiser's; what it did is also part of m, so that at a constant gradient it counts 1/β times"
                ),
            ),
            Difference(
                point="clipping", paper="not established", code="the final gradient to norm 10, optional", ours="none"
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="step length: steps times learning rate",
            shape="1 number",
            reveals="nothing that steps and learning rate did not tell",
            report="step_length",
        ),
    ),
)
