# SPDX-License-Identifier: Apache-2.0
"""ARFL: sites on whose training images the global model has a high loss lose weight.

Choose it if some sites may hold corrupted data. A domain that is merely hard loses weight too, which is the opposite of
what FedDG-GA does: do not use it to serve the worst domain better.

Participation: the weights solve one problem over all sites seen so far. An absent site enters with its last reported
loss; a site that was never seen, or takes no further part, does not enter. If no site of a round has a weight, the
parameters do not move.

Buffers: averaged with the same weights. Integer buffers move by the largest update in any case.

Cost: one evaluation of the received model on each site's training split per round.

Equation: minimise ``sum_u alpha_u L_u + lambda/2 sum_u alpha_u^2 / n_u`` over the simplex, with
``lambda = c sum_u n_u``. A site sends one more number, its loss L_u; the server keeps L and n, both ``[N]``, and solves
for alpha ``[N]``.

Settings: as long as every site has a weight, ``alpha_u = p_u (1 + (Lbar - L_u) / c)``, with p by samples and Lbar the
p-mean of the losses: differences that are small beside ``strength`` c change little. A site is left out once its loss
exceeds the mean of the others by ``c / (1 - p_u)``. When all training losses are near zero, the weights are nearly
those by samples.

Degenerate cases: one site always has weight one. With two, the one with the higher loss yields, whichever is corrupted.
A site under differential privacy reports no loss, so its contributions are refused.

Paper or code: the authors' code is followed except for the moment of measuring, which saves its extra trip. Where it
redraws the sites of a round until one has a weight, the parameters stay as they are.

Together: any objective, and any direction; FedOMG refuses a round in which all weights are zero. FedDG-GA sets the
weights too and is refused.
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
    key="arfl",
    title="ARFL",
    rank=13,
    line="weights that turn away from sites on whose training images the global model has a high loss",
    reference=Reference(
        authors="Li, Ngai, Ye, Voigt",
        title="Auto-weighted Robust Federated Learning with Corrupted Data Sources",
        venue="ACM Transactions on Intelligent Systems and Technology",
        year=2022,
    ),
    acts=("weighting",),
    weighting="fdg_plugins.aggregators.arfl:ARFLWeighting",
    protocol=("gap_split",),
    defaults=(Default(protocol={"gap_split": "train"}, source="ARFL: the loss is that of the training images"),),
    in_composition=(
        "Its weights, scaled to the sites of the round, are the p of the direction. FedOMG's matching is over every "
        "site that moves, as Eq. 15 is: one that is left out here, with p = 0, can still have a share in γ."
    ),
    letters=(
        "Lᵤ mean loss of the model received on site u's training split; nᵤ its training samples; N "
        "all sites seen so far; α their weights; c strength; λ = c Σᵤ nᵤ, a sum over N; pᵤ = nᵤ / Σᵥ nᵥ"
    ),
    equations=(
        Equation(
            formula="minimise  Σᵤ αᵤ Lᵤ + λ/2 Σᵤ αᵤ² / nᵤ   over  α ≥ 0, Σᵤ αᵤ = 1",
            meaning="the problem of which α is the solution, over all sites seen so far",
        ),
        Equation(formula="αᵤ = nᵤ max(η − Lᵤ, 0) / λ", meaning="its solution"),
        Equation(
            formula="η_p = (Σ nᵢ Lᵢ + λ) / Σ nᵢ   over the p smallest losses",
            meaning="η is the last of them before the first that is below the p-th loss",
        ),
    ),
    settings=(
        SettingSource(
            name="strength",
            symbol="c",
            paper="not established; FedDG-GA, which compares with it: not stated",
            code="1",
            remark="above 0; belongs to the scale of the loss, the mean cross entropy",
        ),
        SettingSource(
            name="gap_split",
            paper="training data",
            code="training data",
            remark="must be train, so that sites evaluate on their training split",
        ),
    ),
    exact=(
        "Equal losses, and a strength beyond all of them, weigh by samples: FedAvg, bit for bit.",
        "With strength 1 and no site left out, αᵤ = pᵤ (1 + L̄ − Lᵤ), L̄ the p-mean of the losses.",
        "Towards strength 0 all weight goes to the smallest loss.",
        (
            "An absent site stays in the problem with the loss that it told last; one that was never seen "
            "is not yet part of it, and one that takes no further part in the run no longer."
        ),
        (
            "If no site of a round has a weight, the parameters and running statistics stay; FedOMG "
            "refuses such a round."
        ),
    ),
    differences=Differences(
        rows=(
            Difference(
                point="when a loss is measured",
                paper="not established",
                code="after a round, of its outcome, by the sites of that round, in a trip of its own",
                ours=(
                    "with the update, of the model received: the same loss in the same round where all sites take part"
                ),
            ),
            Difference(
                point="with some of the sites in a round",
                paper="not established",
                code="a site drawn now has the loss of when it was drawn last",
                ours="a site drawn now has that of now; one drawn only in the last round, of one model before",
            ),
            Difference(
                point="weights of the first round",
                paper="not established",
                code="by samples",
                ours="from the losses of the initial model",
            ),
            Difference(
                point="sites never seen",
                paper="not established",
                code="every site's loss is measured at the start",
                ours="not part of the problem",
            ),
            Difference(
                point="all weights of a round zero",
                paper="not established",
                code="the sites are drawn again",
                ours="no step",
            ),
            Difference(
                point="under FedDG-GA's weights",
                paper="excluded by FedDG-GA's paper: both set the weights",
                code="–",
                ours="refused",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="loss, accuracy, count on the training split, of both models",
            shape="6 numbers",
            reveals="how well either model does on the site's data",
            report="training_loss",
        ),
    ),
)
