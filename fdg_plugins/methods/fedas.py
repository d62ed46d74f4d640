# SPDX-License-Identifier: Apache-2.0
"""FedAS: sites first draw the received extractor to their own class means, and weigh by their models' Fisher trace.

Choose it if each site needs a model of its own, few sites train in a round, and a site that has been away long, or has
trained little, should disturb the common extractor less.

Participation: the weights are those of the sites of the round. A site keeps its trained model and its class means, also
over rounds without it. A new one aligns to the class means of the received extractor. The held-out domain is judged by
the global model, whose head is the weighted mean of the sites' heads.

Buffers: averaged with the same weights; a site's own model has its own.

Cost: `align_epochs` more epochs, and two passes over the training split per round, one of them with gradients; at the
site a copy of the model. A new site reads its training split once more.

Equation: first ``sum_k mean |z - mu_k|^2 / D`` over the extractor, mu_k being the site's class means by the extractor
that it trained last, then CE over the model with the site's own head. With ``T_u = sum_b |grad L_b|^2`` of the trained
model, site u has the weight ``T_u / sum_v T_v``.

Settings: `align_epochs` 0 leaves a personal head and the weights. `fisher_batch` is part of what T means: the number of
images whose mean gradient is squared.

Degenerate cases: equal T weigh all sites alike; if T is zero everywhere, sites weigh by samples. One site has all the
weight.

What to watch: T grows with the number of batches and with the loss. A site whose labels are wrong, or which lies, has a
high T and the most weight that the server allows: ten times the odds of its share of the samples.

Paper or code: the authors' code is followed in loss, rate and T. There the sites of a round align one object in turn;
here each its own copy.

Together: any direction but FedNova's, which counts steps of all parameters. FedDG-GA and ARFL set the weights too, and
other objectives train the sites; they are refused. Differential privacy refuses T.
"""

from fdg_plugins.plugins.method import (
    Difference,
    Differences,
    Equation,
    Leaving,
    Method,
    Reference,
    SettingSource,
)

METHOD = Method(
    key="fedas",
    title="FedAS",
    part="as",
    part_title="AS",
    rank=21,
    line="the received extractor is first drawn to a site's own class means; sites weigh by their models' Fisher trace",
    reference=Reference(
        authors="Yang, Huang, Ye",
        title="FedAS: Bridging Inconsistency in Personalized Federated Learning",
        venue="CVPR",
        year=2024,
    ),
    acts=("weighting", "objective", "step", "personal"),
    weighting="fdg_plugins.aggregators.fedas:FisherWeighting",
    objective="fdg_plugins.objectives.fedas:FedASObjective",
    in_composition=(
        "The sites align before they train; the weights by T, which sum to one, are the p of the direction, which sees "
        "the updates of the received model."
    ),
    letters=(
        "z features [D]; μ_k mean features of class k at the site, by the extractor that it trained last; B_k the "
        "batch's images of class k; L_b mean cross entropy of batch b of the site's training images; w its trained "
        "model; Tᵤ Fisher trace of site u; η rate of the alignment; CE mean cross entropy of a batch"
    ),
    equations=(
        Equation(
            formula="Σ_k 1/|B_k| Σ_{i ∈ B_k} ‖zᵢ − μ_k‖² / D",
            meaning="what the extractor minimises in the first epochs, the head having no part in it",
        ),
        Equation(formula="CE", meaning="what extractor and the site's own head minimise then"),
        Equation(formula="Tᵤ = Σ_b ‖∇_w L_b‖²", meaning="of the trained model, in evaluation mode"),
        Equation(formula="Tᵤ / Σᵥ Tᵥ", meaning="the weight of site u"),
    ),
    settings=(
        SettingSource(
            name="align_epochs", paper="not established", code="1", remark="0: no alignment; beside local_epochs"
        ),
        SettingSource(name="align_lr", symbol="η", paper="not established", code="0.01", remark="of plain SGD"),
        SettingSource(
            name="fisher_batch",
            paper="not established",
            code="the training batch, 16",
            remark="images whose mean gradient is squared, 1 to 64",
        ),
    ),
    exact=(
        "Equal T weigh all sites alike, T = 0 everywhere by samples; one site has weight 1.",
        "align_epochs 0 trains a site that has kept nothing as FedAvg does, bit for bit, and later under its own head.",
        "In the alignment the head has no step and keeps its bits; running statistics move.",
        "A class without images at the site has no term.",
        "The update is local minus received, not minus aligned.",
    ),
    differences=Differences(
        compared="authors' code, PFLlib",
        rows=(
            Difference(
                point="the model that is aligned",
                paper="the received one, at each site",
                code="one object, by the sites of the round in turn",
                ours="the received one, at each site",
            ),
            Difference(
                point="class means of a new site",
                paper="not established",
                code="by the initial extractor",
                ours="by the received extractor",
            ),
            Difference(
                point="T",
                paper="trace of the Fisher information",
                code=(
                    "mean gradients of whole batches, squared and summed, an incomplete last one dropped; also of "
                    "sites not drawn, for the log"
                ),
                ours="the same, of the sites that train; fewer images than a batch are one",
            ),
            Difference(
                point="all T zero",
                paper="not established",
                code="divides by zero",
                ours="weights by samples",
            ),
            Difference(
                point="buffers",
                paper="not established",
                code="those of the first site",
                ours="averaged with the weights",
            ),
            Difference(
                point="an unseen domain",
                paper="not defined",
                code="not defined",
                ours="the global model, whose head is the weighted mean of the heads",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="sum of the squared gradients of the trained model over batches of training images",
            shape="1 number",
            reveals=(
                "how far the site's model is from fitting its images; grows with their number and with wrong labels"
            ),
            report="fisher_trace",
        ),
        Leaving(
            what="loss, accuracy, count on validation, of the site's own model",
            shape="3 numbers",
            when="every round in which the site trains or judges a model, and once after the last",
            reveals="how well a model fitted to the site does on its data",
        ),
    ),
)
