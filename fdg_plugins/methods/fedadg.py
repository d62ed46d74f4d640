# SPDX-License-Identifier: Apache-2.0
"""FedADG: features are drawn to those of a generator that all sites train, class by class.

Choose it if the sites hold different domains of the same classes, are few, and may share a generator of their features.
It requires one class per image.

Participation: the generator is averaged as the rest of the network. The discriminator is personal: kept by a site for
its next round, never sent. A new site starts with a fresh one, an absent one finds its own again.

Buffers: averaged as under FedAvg; BatchNorm sees each batch once.

Cost: ``2 D (2 D + Y)`` more parameters in every update, for D features and Y classes; one pass of the extractor per
step, two of the generator, four of the discriminator.

Equation: in each step D learns ``(1 - D(g))^2 + D(z)^2``, then F and C ``w CE + (1 - w) (1 - D(z))^2``, and G
``(D(g) - t)^2``; z are features, g generated ones, both ``[B, D]``.

Settings: with w = 1 there is no adversary, and with smoothing 0 as well it is FedAvg, bit for bit. Learning rates of
generator and discriminator follow the site's.

What to watch: the losses saturate where D is certain. A site without a class does not train the generator on it. FedIIR
and FedDIM report that the method becomes worse with many sites.

Paper or code: the authors' code is followed. What the generator aims at in the paper is not established
(``generator_target``).

Together: any weighting, and any direction but FedNova's, which counts steps of all parameters; a direction sees the
generator as part of the model.
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
    key="fedadg",
    title="FedADG",
    part="adg",
    part_title="ADG",
    rank=17,
    line="features are drawn to those of a generator that all sites train, class by class",
    reference=Reference(
        authors="Zhang, Lei, Shi, Huang, Chen",
        title="Federated Learning with Domain Generalization",
        venue="arXiv",
        year=2021,
    ),
    acts=("objective", "network", "step"),
    objective="fdg_plugins.objectives.fedadg:FedADGObjective",
    defaults=(
        Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="FedADG's code"),
        Default(
            objective={
                "classification_weight": 0.85,
                "smoothing": 0.01,
                "warmup": 0.3,
                "adversary_rate": 0.7,
                "generator_target": 0,
            },
            source="FedADG's code for PACS",
        ),
        Default(on="vlcs", objective={"smoothing": 0.2}, source="FedADG's code"),
    ),
    in_composition=(
        "The sites train against their discriminators; weights and direction see the updates of the network, generator "
        "included."
    ),
    letters=(
        "F extractor; C head; z = F(x) features [D]; y label; G generator, g = G(u, y), u uniform on [0, 1)^D, one "
        "draw per batch; D discriminator: 1 generated, 0 real; w classification_weight; t generator_target; CE cross "
        "entropy with smoothed labels: 1 − ε of the right class, ε/(Y − 1) of each other one; ε smoothing"
    ),
    equations=(
        Equation(formula="D: mean (1 − D(g, y))² + D(z, y)²", meaning="first step of a batch; only D moves"),
        Equation(
            formula="F, C: w CE(C(z), y) + (1 − w) mean (1 − D(z, y))²",
            meaning="second step: features that D takes for generated ones",
        ),
        Equation(formula="G: mean (D(g, y) − t)²", meaning="third step: generated features that D takes for real ones"),
    ),
    settings=(
        SettingSource(
            name="classification_weight",
            symbol="w",
            paper="not established",
            code="0.85",
            remark="1 has no adversary, and with smoothing 0 is FedAvg, bit for bit",
        ),
        SettingSource(name="smoothing", symbol="ε", paper="not established", code="0.01; 0.2 for VLCS"),
        SettingSource(
            name="warmup",
            paper="not established",
            code="3 of 10 epochs",
            remark="share of a round's epochs with cross entropy alone, rounded down",
        ),
        SettingSource(
            name="adversary_rate",
            paper="not established",
            code="0.007 beside 0.01; 0.0007 beside 0.001 for VLCS",
            remark="learning rate of G and D, relative to the site's",
        ),
        SettingSource(name="generator_target", symbol="t", paper="not established", code="0", remark="or 1"),
    ),
    exact=(
        "classification_weight 1 with smoothing 0 is FedAvg, bit for bit.",
        "D's step moves neither F, C nor G; the step of F and C leaves D; G's step leaves D and F.",
        "Where D says 1/2 throughout, its loss is 1/2, and that of the features 1/4.",
        "During the first ⌊warmup epochs⌋ epochs of a round, G and D do not change.",
        "D is personal: kept by the site, never sent.",
    ),
    differences=Differences(
        remark=(
            "The FDG benchmark's code detaches the generated features in the generator's own step, so that its "
            "generator never trains; this is not reproduced."
        ),
        rows=(
            Difference(
                point="target of the generator",
                paper="not established",
                code="0",
                ours="generator_target, 0 by default",
            ),
            Difference(
                point="sizes of generator and discriminator",
                paper="not established",
                code="noise 2048, 4096 and 1024 units, at 2048 features",
                ours="D, 2 D and D/2 for D features: the same at 2048",
            ),
            Difference(
                point="initial weights of generator and discriminator",
                paper="not established",
                code="Xavier uniform with gain 0.5; Kaiming uniform",
                ours="torch's, 1/√6 of the latter",
            ),
            Difference(
                point="features in the discriminator's step",
                paper="not established",
                code="in evaluation mode, by a pass of their own",
                ours="those of the next step, in training mode: one pass of the extractor",
            ),
            Difference(
                point="optimiser of F and C",
                paper="not established",
                code="SGD",
                ours="the protocol's; SGD for G and D, with the protocol's momentum",
            ),
            Difference(
                point="model that a site sends",
                paper="not established",
                code="meant to be the epoch of best validation; the last one, because references are kept",
                ours="the last epoch",
            ),
            Difference(point="averaging", paper="not established", code="uniform", ours="weighting"),
        ),
    ),
    leaves=(
        Leaving(
            what="the generator of features, within the update",
            shape="2 D (2 D + Y) numbers and 3 D biases, for D features and Y classes",
            reveals="what the features of each class look like at the site: anyone who has it can draw such features",
        ),
    ),
)
