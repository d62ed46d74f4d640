# SPDX-License-Identifier: Apache-2.0
"""FedSR: features are sampled from a Gaussian that is kept short and close to a Gaussian of the class.

Choose it if the sites hold different domains of the same classes and share only updates: each site limits, on its own,
what its features tell beyond the class. The network gains a Gaussian layer, which is averaged like the rest.

Participation: the Gaussians of the classes are personal: trained by a site, kept for its next round, never sent. A new
site starts from fixed values; an absent one finds its own again.

Buffers: averaged as under FedAvg.

Cost: ``2 D (D + 1)`` more parameters in every update, for D features.

Equation: ``z = m + s eps``, and a site minimises
``CE(head(z), y) + a_L2 mean |z| + a_CMI mean KL(N(C m, (C s)^2) || N(r_mu[y], r[y]^2))``, ``r = softplus(r_sigma)``. m
and s are ``[B, D]``; r_mu and r_sigma ``[Y, D]`` and the scalar C stay at the site. Nothing but the update is
exchanged.

Settings: the divergence is a sum over D coordinates, so ``cmi_strength`` weighs about four times as much with 2048
features as with 512. Strengths of zero are not FedAvg of the plain network: the layer and its noise remain. Use that
run, not FedAvg's, to see what the two terms do. The authors' values belong to a learning rate of 0.01.

What to watch: a site that loses its folder starts its references anew. Weight decay acts on them too, also on rows of
classes that the site lacks. Images need one class each.

Paper or code: the authors' code is followed, but for evaluation by the mean and the lower bounds of C and the scales.
FedOMG's released code for FedSR draws a new random head for every batch, which is not reproduced.

Together: any weighting and direction; a direction sees the Gaussian layer and never the references.
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
    key="fedsr",
    title="FedSR",
    part="sr",
    part_title="SR",
    rank=16,
    line=(
        "features are drawn from a Gaussian, kept short, and near a Gaussian of their class that the "
        "site keeps to itself"
    ),
    reference=Reference(
        authors="Nguyen, Torr, Lim",
        title="FedSR: A Simple and Effective Domain Generalization Method for Federated Learning",
        venue="NeurIPS",
        year=2022,
    ),
    acts=("objective", "network"),
    objective="fdg_plugins.objectives.fedsr:FedSRObjective",
    defaults=(Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="FedSR's code"),),
    in_composition=(
        "The sites minimise the loss; weights and direction see the updates of the model, Gaussian "
        "layer included, and nothing of the references."
    ),
    letters=(
        "m, s mean and scale [D] of an image's features; ε standard normal; z sample; y label; r_μ, "
        "r_σ references [Y, D]; C factor; α l2_strength; β cmi_strength"
    ),
    equations=(
        Equation(formula="z = m + s ε", meaning="features that the head reads in training; in evaluation it reads m"),
        Equation(formula="L2R = mean_B ‖z‖", meaning="length of the features"),
        Equation(
            formula="CMI = mean_B KL( N(C m, (C s)²) ‖ N(r_μ[y], softplus(r_σ[y])²) )",
            meaning="divergence from the class's reference, summed over the coordinates",
        ),
        Equation(
            formula="CE(head(z), y) + α L2R + β CMI", meaning="what a site minimises, over the model, r_μ, r_σ and C"
        ),
    ),
    settings=(
        SettingSource(name="l2_strength", symbol="α", paper="FedOMG's Table 4: 0.01", code="0.01"),
        SettingSource(
            name="cmi_strength", symbol="β", paper="FedOMG's Table 4: 0.001", code="0.001 (README); 5e-4 (command line)"
        ),
        SettingSource(
            name="norm",
            paper="not established; the abstract says L2-norm regularizer",
            code="norm: not squared",
            remark="squared, as in the FDG benchmark's code",
        ),
    ),
    exact=(
        "With both strengths 0 and s = 0, training is FedAvg's of the same network, bit for bit.",
        "CMI is 0 exactly where C m = r_μ[y] and C s = softplus(r_σ[y]).",
        "r_μ, r_σ and C are personal: they start at 0, 1 and 1, are kept by the site, and are never sent.",
        "A class that a site lacks has no gradient; an absent site finds its references again.",
    ),
    differences=Differences(
        rows=(
            Difference(point="length", paper="not established", code="mean norm", ours="norm, or squared"),
            Difference(
                point="evaluation",
                paper="not established",
                code="log of the mean softmax over 20 samples of z",
                ours="by the mean m: one answer for an image",
            ),
            Difference(
                point="head behind z", paper="not established", code="one linear layer", ours="head of the protocol"
            ),
            Difference(
                point="positive C and scales",
                paper="not established",
                code="not ensured",
                ours="C at least 1/128 after each step, scales at least 1e-6",
            ),
            Difference(point="averaging", paper="not established", code="uniform", ours="weighting"),
            Difference(
                point="size of z",
                paper="not established",
                code="512 (ResNet-18), 2048 (ResNet-50)",
                ours="that of the extractor: the same",
            ),
        ),
    ),
    together=(
        Together(
            method="fedomg",
            source=(
                "reported in FedOMG's paper (Table 2), FedSR at 0.01 and 0.001 (Table 4); its released FedSR code "
                "draws a new random head for every batch"
            ),
        ),
    ),
)
