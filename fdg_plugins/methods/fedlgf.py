# SPDX-License-Identifier: Apache-2.0
"""FedLGF: predictions are drawn to those of heads that are perturbed against them, the own and the global one.

Choose it if the sites hold different domains of the same classes and share only updates. It requires one class per
image.

Participation: as under FedAvg. Nothing is exchanged and nothing is kept, so absent and new sites need no rule.

Buffers: averaged as under FedAvg; the model as received is used in evaluation mode.

Cost: one more pass of the extractor per step, without gradients, and about three of each head; with singular values a
decomposition of each linear layer of the head, for which torch makes an accelerator wait.

Equation: ``CE + lambda_l KL(q_l || p) + lambda_g KL(q_g || p)``; q are predictions ``[B, Y]`` of the current and of the
received head with weights moved by ``size`` in the direction in which predictions depart most from p.

Settings: 0.1 of a singular value, or of the length of a row, is an absolute length: its effect depends on the size of
the weights. The values of one kind of perturbation do not fit the other.

What to watch: at the first step of a round both targets differ from p by the perturbation alone.

Paper or code: the authors' code is followed; of the paper only the abstract was read.

Together: any weighting and direction, which see no more than the updates.
"""

from fdg_plugins.plugins.method import Default, Difference, Differences, Equation, Method, Reference, SettingSource

METHOD = Method(
    key="fedlgf",
    title="FedLGF",
    part="lgf",
    part_title="LGF",
    rank=19,
    line="predictions are drawn to those of heads that are perturbed against them, the own and the global one",
    reference=Reference(
        authors="Yan, Guo",
        title="Local and Global Flatness for Federated Domain Generalization",
        venue="ECCV",
        year=2024,
    ),
    acts=("objective",),
    objective="fdg_plugins.objectives.fedlgf:FedLGFObjective",
    defaults=(
        Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="FedLGF's code"),
        Default(
            objective={
                "local_strength": 0.1,
                "global_strength": 0.1,
                "perturbation": "singular",
                "probing": 10.0,
                "size": 0.1,
                "noise": "normal",
            },
            source="the run in FedLGF's README",
        ),
    ),
    in_composition="The sites minimise the loss; weights and direction see no more than the updates that follow.",
    letters=(
        "p predictions [Y] of the model that is trained; h a head, the current or the received one, on the features of "
        "its own extractor; p_h its predictions; W = U diag(S) V' a weight of its linear layers; δ perturbation; s₀ "
        "probing; s₁ size; λ_l local_strength; λ_g global_strength"
    ),
    equations=(
        Equation(
            formula="singular: U diag(relu(S + s δ)) V',   weight: W + s δ",
            meaning="a head perturbed by s; |δ| = 1 for the singular values of a layer, or for each row of a weight",
        ),
        Equation(
            formula="δ̂ = ∇_δ KL(p ‖ p_h(s₀ δ₀)), of length 1",
            meaning="δ₀ random, of length 1: the direction in which predictions depart most from p",
        ),
        Equation(formula="q = p_h(s₁ δ̂)", meaning="target: q_l of the current head, q_g of the received; constant"),
        Equation(formula="CE + λ_l KL(q_l ‖ p) + λ_g KL(q_g ‖ p)", meaning="what a site minimises"),
    ),
    settings=(
        SettingSource(name="local_strength", symbol="λ_l", paper="not established", code="0.1"),
        SettingSource(
            name="global_strength",
            symbol="λ_g",
            paper="not established",
            code="0.1",
            remark="both strengths 0 are FedAvg, bit for bit",
        ),
        SettingSource(
            name="perturbation",
            paper="weights and singular values",
            code="singular in the README's run",
            remark="or weight",
        ),
        SettingSource(name="probing", symbol="s₀", paper="not established", code="10; weight: 0.1"),
        SettingSource(
            name="size", symbol="s₁", paper="not established", code="0.1; weight: 0.01", remark="0: the targets are p_h"
        ),
        SettingSource(name="noise", paper="not established", code="normal; weight: uniform on [-0.5, 0.5)"),
    ),
    exact=(
        "Both strengths 0 are FedAvg, bit for bit.",
        "size 0: q_l = p up to rounding, and its term has the value 0 and no gradient.",
        "size 0 at the first step of a round, without layers that differ in evaluation: q_g = p too.",
        "No gradient passes through q; biases are never perturbed.",
        "There is no state: an absent site leaves no trace, a new one needs nothing.",
    ),
    differences=Differences(
        rows=(
            Difference(
                point="direction of q_g",
                paper="not established",
                code="away from the predictions p of the model that is trained",
                ours="the same",
            ),
            Difference(
                point="heads of two layers",
                paper="not established",
                code="perturbations of singular values have length 1 per layer",
                ours="the same",
            ),
            Difference(
                point="BatchNorm",
                paper="not established",
                code="frozen",
                ours="batch_norm of the protocol; the received model is used in evaluation mode",
            ),
            Difference(
                point="initial weights of the head",
                paper="not established",
                code="Kaiming normal, standard deviation √(2/D) for D inputs",
                ours="torch's, uniform, standard deviation √(1/3D), as for every method",
            ),
            Difference(
                point="epochs per round", paper="not established", code="1", ours="local_epochs of the protocol"
            ),
            Difference(point="averaging", paper="not established", code="uniform", ours="weighting"),
        ),
    ),
)
