# SPDX-License-Identifier: Apache-2.0
"""FedDIM: each sample's features times classifier weights are pulled towards the mean of its class over sites.

Choose it if the sites hold different domains of the same classes and may share class means of features: the network
then learns to decide for the reasons that all sites have in common. Do not choose it if a class may have very few
samples at a site, because the mean of a few samples reveals their features.

Participation: a class is averaged over the sites of the round that have it. An absent site is not needed, and a new one
receives the insight of the others. The first round is FedAvg, bit for bit.

Buffers: averaged as under FedAvg; class means are computed in evaluation mode.

Cost: one table ``[Y, D]`` per step at a site; a broadcast of ``[Y, D, Y]`` numbers per round.

Equation: ``I[d, y] = W[y, d] z[d]`` is a sample's insight, and a site minimises
``CE + strength/B sum_i |I_i - J^(y_i)|^2``. Up go the class means ``[K, D]`` of the K classes held and counts ``[Y]``;
down comes J, ``[Y, D, Y]`` (target feature: ``[Y, D]``, logit: ``[Y, Y]``), which is made of the round before.

Settings: the penalty is a sum over D x Y entries, so the same ``strength`` weighs more with longer features, larger
weights or more classes: choose it anew for every network and head. ``insight_momentum`` 0 binds all rounds to the
insights of the first; with few sites per round, a small value keeps J from following whoever was drawn.

What to watch: means are taken in evaluation mode of unchanged images, the penalty in training mode of augmented ones;
with BatchNorm and small batches the two read rather different features of the same image. One site alone is pulled
towards its own past.

Paper or code: the paper is followed, with the batch's mean cross entropy beside the penalty's mean; its two
hyperparameters are not printed. No code was compared.

Together: any weighting and direction; J counts sites equally whatever their weights. The whole head must travel.
Differential privacy refuses the class means.
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
    key="feddim",
    title="FedDIM",
    part="dim",
    part_title="DIM",
    rank=3,
    line="each sample's insight, features times classifier weights, is drawn to the mean of its class over sites",
    reference=Reference(
        authors="Liao, Xie, Fu, Huang, Deng, Chen, Zheng",
        title="Federated Domain Generalization with Decision Insight Matrix",
        venue="IJCAI",
        year=2025,
    ),
    acts=("objective",),
    objective="fdg_plugins.objectives.feddim:FedDIMObjective",
    defaults=(
        Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="FedDIM, Eq. 5: every site the same"),
        Default(
            objective={"strength": 0.01, "insight_momentum": 0.5, "target": "insight"},
            source="ours: the paper prints neither",
        ),
    ),
    in_composition="The sites minimise Eq. 7; weights and direction see no more than the updates that follow.",
    letters=(
        "z features [D] that enter the last layer; W its weight [Y, D]; B batch; J⁽ᵏ⁾ global insight "
        "of class k [D, Y]; λ strength; m insight_momentum"
    ),
    equations=(
        Equation(
            number="Eq. 2, 3",
            formula="I[d, y] = W[y, d] z[d]",
            meaning="insight of a sample; its sums over d are the logits without bias",
        ),
        Equation(
            number="Eq. 4",
            formula="Iᵤ⁽ᵏ⁾ = mean of I over site u's samples of class k",
            meaning="rebuilt by the server from the site's class means: Iᵤ⁽ᵏ⁾[d, y] = Wᵤ[y, d] z̄ᵤ,ₖ[d]",
        ),
        Equation(
            number="Eq. 5, 6",
            formula="J⁽ᵏ⁾ ← (1 − m) J⁽ᵏ⁾ + m meanᵤ Iᵤ⁽ᵏ⁾",
            meaning="global insight; the first time it is the mean itself",
        ),
        Equation(
            number="Eq. 7",
            formula="CE + λ/B Σᵢ ‖Iᵢ − J⁽ʸⁱ⁾‖²",
            meaning="what a site minimises, J of the sample's class being fixed for the round",
        ),
    ),
    settings=(
        SettingSource(
            name="strength",
            symbol="λ",
            paper="not printed; grid 1e-4 to 1, of which 1 hurts",
            remark=(
                "the default is our choice; stands beside the mean cross entropy of a batch; 0 is FedAvg, bit for bit"
            ),
        ),
        SettingSource(
            name="insight_momentum",
            symbol="m",
            paper="not printed; grid 0.1 to 0.9",
            remark="the default is our choice; 0 keeps the first value, 1 has no memory",
        ),
        SettingSource(name="target", paper="insight; feature and logit in Table 3", remark="what is drawn together"),
    ),
    exact=(
        "Round 0 sends nothing down and trains as FedAvg, bit for bit; so does every round with strength 0.",
        "A class counts over the sites that have it; one that none has had so far costs nothing.",
        "insight_momentum 0 keeps the first value for ever, 1 has no memory.",
        (
            "A round without usable reports leaves J; an absent site needs nothing, a new one is sent "
            "what the others made."
        ),
    ),
    differences=Differences(
        compared="",
        remark="No code of the authors was compared.",
        rows=(
            Difference(
                point="a site sends",
                paper="insight matrices, classes × features × classes",
                ours="class means and counts; the server rebuilds the matrices, exactly",
            ),
            Difference(
                point="mean over sites (Eq. 5)",
                paper="over all sites of the round",
                ours="over those that have the class: the same if all do",
            ),
            Difference(
                point="cross entropy in Eq. 7",
                paper="a sum over the batch",
                ours="its mean: the same effect takes a λ smaller by the factor of the batch size",
            ),
            Difference(
                point="weights in Eq. 4",
                paper="the site's",
                ours="global + update, the same up to rounding and to what a filter did to the update",
            ),
            Difference(
                point="λ, m", paper="chosen by grid search, not printed", ours="defaults of ours, within the grids"
            ),
            Difference(
                point="with FedOMG or FedDG-GA",
                paper="not reported",
                ours="offered",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="mean feature vector of each class",
            shape="classes held × features",
            reveals=(
                "a mean of few samples is close to a sample's own features; of one sample it is them. All sites "
                "receive what follows from the mean of a class that one site of a round holds alone"
            ),
            report="class_means",
        ),
        Leaving(
            what="number of samples of each class",
            shape="classes",
            reveals="class shares, which the census told before; with masks the number of pixels of each class, which "
            "it did not tell",
            report="class_means",
        ),
    ),
)
