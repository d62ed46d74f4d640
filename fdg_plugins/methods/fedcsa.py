# SPDX-License-Identifier: Apache-2.0
"""FedCSA: each class's row of the last layer is averaged with weights from the sites' shares of that class.

Choose it if the sites hold the classes in different proportions, or lack some. If all sites have the same shares, it is
FedAvg, bit for bit. The class counts come from the census, so nothing more leaves a site.

Participation: the sites of the round only. The row of a class whose owners are all absent follows the reference
weights. Nothing is kept between rounds.

Buffers: averaged as under FedAvg.

Requires this package's workflow, which provides the last layer's names and the class counts. The exact rule of the
paper is not established; this is the description in FedDG-GA's paper.

Equation, for row k of the last layer: ``theta+[k] = theta[k] + server_lr sum_u w_{u,k} Delta_u[k]`` with
``w_{u,k} = a_u r_{u,k} / sum_v a_v r_{v,k}`` and ``r_{u,k} = n_{u,k} / n_u``. Counts are ``[U, Y]``, w is ``[U, Y]``
with columns that sum to one; all other parameters move with a ``[U]``.

Settings: the weighting chooses the reading. By samples, w is a site's part of the round's images of class k; uniform, a
small site in which k is frequent counts more than a large one in which it is rare.

What to watch: a site without class k has no part in row k, although its training pushes that row down. The row of a
rare class follows the few sites that have it. In a head of two layers the first is averaged as the extractor is. The
coefficients in the record are a, not the weights of the rows.

Paper or code: of the paper's two strategies neither could be verified and no code is known. Printed numbers of FedCSA
are therefore compared with FedDG-GA's account of it.

Together: any objective; weights of FedDG-GA or ARFL stand for a. It needs the whole head to travel, since rows that
stay at the sites cannot be averaged. Another method that sets the direction is refused.
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
    key="fedcsa",
    title="FedCSA",
    rank=12,
    line="the last layer's row of each class is averaged by who holds images of that class",
    reference=Reference(
        authors="Ma, Zhao, Cai, Jia",
        title="Fast-convergent federated learning with class-weighted aggregation",
        venue="Journal of Systems Architecture",
        year=2021,
    ),
    acts=("direction",),
    aggregator="fdg_plugins.aggregators.fedcsa:FedCSAAggregator",
    defaults=(
        Default(
            on="photographs",
            server={"server_lr": 1.0, "weighting": "samples"},
            source="FedCSA in FedDG-GA's description",
        ),
        Default(on="digits", server={"server_lr": 1.0, "weighting": "uniform"}, source="domains of one size"),
        Default(on="label_skew", server={"weighting": "samples"}, source="FedAvg"),
    ),
    in_composition="a comes from the weighting, for the rows too; the updates come from any local objective.",
    letters=(
        "Δᵤ update of site u (local − global); nᵤ,ₖ its images of class k; nᵤ all its images; a "
        "reference weights; η server_lr"
    ),
    equations=(
        Equation(
            formula="rᵤ,ₖ = nᵤ,ₖ / nᵤ", meaning="share of class k at site u, from the images that the census counted"
        ),
        Equation(formula="wᵤ,ₖ = aᵤ rᵤ,ₖ / Σᵥ aᵥ rᵥ,ₖ", meaning="weights of row k of the last layer's weight and bias"),
        Equation(
            formula="θ⁺ = θ + η Σᵤ aᵤ Δᵤ\nθ⁺[k] = θ[k] + η Σᵤ wᵤ,ₖ Δᵤ[k]",
            meaning="step of the server, of all else and of row k",
        ),
    ),
    settings=(
        SettingSource(
            name="weighting",
            symbol="a",
            paper="not established",
            remark=(
                "samples: wᵤ,ₖ are shares of the images of class k; uniform: of the sites' shares; or an "
                "object with a name and settings, such as ga"
            ),
        ),
        SettingSource(
            name="server_lr", symbol="η", paper="not established", remark="factor of the step; 1 steps as far as FedAvg"
        ),
    ),
    exact=(
        "Equal shares of the classes at all sites are FedAvg, bit for bit, and so is one site alone.",
        "The row of a class that one site of the round holds alone is that site's.",
        "The weights of each row sum to one.",
        "A class that no site of the round has, or none with a weight, follows a.",
        "Of a head of two layers only the last has rows of classes.",
    ),
    differences=Differences(
        compared="",
        remark="No code of the authors was compared; none is known.",
        rows=(
            Difference(
                point="rule",
                paper="two strategies, whose exact form is not established",
                ours="FedDG-GA's description of it, one sentence",
            ),
            Difference(
                point="under FedDG-GA's weights",
                paper="reported by FedDG-GA, how they combine is not established",
                ours="they stand for a: our generalisation",
            ),
            Difference(
                point="under FedOMG",
                paper="not reported",
                ours="refused: both set the direction",
            ),
        ),
    ),
    together=(Together(method="fedga", source="reported in FedDG-GA's paper (Tables 1 and 2), without code"),),
)
