# SPDX-License-Identifier: Apache-2.0
"""FedRoD: one generic model trained as if classes were equally frequent, and a head of each site's own on top of it.

Choose it if the sites hold different shares of the classes and need a model of their own beside the common one.

Participation: the personal head is trained by its site, kept for its next round, and never sent. A new site starts with
a head that adds nothing; an absent one finds its own again. The held-out domain is judged by the generic model.

Buffers: averaged as under FedAvg.

Cost: one more head at each site; the extractor's features serve both.

Equation: extractor and generic head minimise ``CE(o_G + balance log n_k, y)``, the personal head
``CE(sg(o_G) + o_P, y)``, with sg without gradient and n_k the site's training samples of class k.

Settings: a balance of zero is FedAvg for the generic model, and so are sites with equally many samples of each class.

What to watch: a site that loses its folder starts its head anew. Images need one class each.

Paper or code: the linear personal head is implemented, the hyper-network of the paper's second form is not. It starts
at zero, in public code as a copy of the generic head.

Together: any weighting and direction; a direction sees extractor and generic head only.
"""

from fdg_plugins.plugins.method import (
    Difference,
    Differences,
    Equation,
    Leaving,
    Method,
    Reference,
    SettingSource,
    Together,
)

METHOD = Method(
    key="fedrod",
    title="FedRoD",
    part="rod",
    part_title="RoD",
    rank=17,
    line="a generic model trained by balanced softmax, and a personal head on top of it that stays at its site",
    reference=Reference(
        authors="Chen, Chao",
        title="On Bridging Generic and Personalized Federated Learning for Image Classification",
        venue="ICLR",
        year=2022,
    ),
    acts=("objective", "personal"),
    objective="fdg_plugins.objectives.fedrod:FedRoDObjective",
    in_composition=(
        "The sites minimise the loss; weights and direction see the updates of extractor and generic head, and nothing "
        "of the personal heads."
    ),
    letters=(
        "z features; o_G, o_P logits of the generic and of the personal head; sg(·) without gradient; y label; nₖ the "
        "site's training samples of class k; γ balance; CE mean cross entropy of a batch"
    ),
    equations=(
        Equation(formula="CE(o_G + γ log nₖ, y)", meaning="balanced softmax, for extractor and generic head"),
        Equation(formula="CE(sg(o_G) + o_P, y)", meaning="for the personal head alone, which reads sg(z)"),
        Equation(formula="o_G + o_P", meaning="the site's own prediction; elsewhere o_G is the prediction"),
    ),
    settings=(
        SettingSource(name="balance", symbol="γ", paper="1", code="PFLlib: 1", remark="0: the generic model is FedAvg"),
    ),
    exact=(
        "balance 0, and equally many samples of each class, train the generic model as FedAvg, bit for bit.",
        "The gradient of the personal head's loss is zero for extractor and generic head.",
        "A site that has not trained yet predicts as the generic model does.",
        "A class that a site lacks has probability zero in its balanced softmax, and no gradient.",
    ),
    differences=Differences(
        compared="PFLlib, FedOMG",
        rows=(
            Difference(
                point="start of the personal head",
                paper="not established",
                code="a copy of the initial generic head",
                ours="its last layer at zero: the generic prediction",
            ),
            Difference(
                point="hyper-network for the personal head",
                paper="the second form",
                code="not implemented",
                ours="not implemented",
            ),
            Difference(
                point="optimiser of the personal head",
                paper="not established",
                code="one of its own with the same settings",
                ours="that of the model: SGD and Adam treat each parameter by itself",
            ),
            Difference(
                point="under FedOMG",
                paper="FedOMG's Tables 1 and 5, without details",
                code="updates scaled by their share of the samples, the result times N, of all sites",
                ours="FedOMG's step on extractor and generic head, of the sites of the round",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="loss, accuracy, count on validation, of the site's own model",
            shape="3 numbers",
            when="every round in which the site trains or judges a model, and once after the last",
            reveals="how well a model fitted to the site does on its data",
        ),
    ),
    together=(Together(method="fedomg", source="reported in FedOMG's paper (Tables 1 and 5)"),),
)
