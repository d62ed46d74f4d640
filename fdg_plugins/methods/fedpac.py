# SPDX-License-Identifier: Apache-2.0
"""FedPAC: features of a class are drawn to its mean over all sites, and each site has a mixture of all sites' heads.

Choose it if the sites hold different shares of the same classes and each need a model of their own, while one extractor
serves all, and if class means may leave them.

Participation: the mixtures are over the sites of the round, and the server keeps the last one of every site. An absent
site keeps the head that it trained; a new one starts from the mean of all heads, which also judges the held-out domain.

Buffers: averaged as under FedAvg.

Cost: `head_epochs` more epochs and two more passes over the training split per round; a head for each site at the
server; a quadratic program of the size of the round for each of its sites.

Equation: first CE over the head, then ``CE + strength / D |z - c_y|^2`` over the extractor, c_k being the mean features
of class k over all samples of the round's sites. The head of site i becomes ``sum_j alpha_ij head_j``, alpha_i
minimising ``alpha' (diag(V) + D_i) alpha`` over the simplex.

Settings: with a strength of zero the features are not aligned; training then alternates between head and extractor.

What to watch: the server learns class means, and a mixture tells a site about the others' heads. Images need one class
each.

Paper or code: the quadratic program is solved exactly by the active-set method of FedOMG's matching. A site's own model
is judged with the head that it trained last, in code with the mixture.

Together: any weighting and any direction but FedNova's, which counts steps of all parameters. Differential privacy
refuses the class means.
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
    key="fedpac",
    title="FedPAC",
    part="pac",
    part_title="PAC",
    rank=20,
    line="features of a class are drawn to its mean over all sites, and each site has a mixture of all heads",
    reference=Reference(
        authors="Xu, Tong, Huang",
        title="Personalized Federated Learning with Feature Alignment and Classifier Collaboration",
        venue="ICLR",
        year=2023,
    ),
    acts=("objective", "step", "personal"),
    objective="fdg_plugins.objectives.fedpac:FedPACObjective",
    in_composition=(
        "The sites train in two phases; weights and direction see the updates that follow, and neither the class means "
        "nor the mixtures of heads. FedOMG matches whole updates, heads that each site trained for itself among them."
    ),
    letters=(
        "z features [D]; c_k prototype of class k; λ strength; μᵤₖ, nᵤₖ mean features and number of site u's samples "
        "of class k; πᵤₖ, nᵤ their share and sum; hᵤ weighted means [Y, D]; Vᵤ uncertainty; αᵢ weights of site i's "
        "mixture; CE mean cross entropy of a batch"
    ),
    equations=(
        Equation(formula="CE", meaning="what the head minimises in the first epochs, the extractor being fixed"),
        Equation(formula="CE + λ/D mean ‖z − c_y‖²", meaning="what the extractor minimises then, the head being fixed"),
        Equation(formula="c_k = Σᵤ nᵤₖ μᵤₖ / Σᵤ nᵤₖ", meaning="prototype, of the features after the training"),
        Equation(
            formula="hᵤ[k] = πᵤₖ μᵤₖ\nVᵤ = (E‖z‖² − ‖hᵤ‖²) / nᵤ", meaning="of the features of the received extractor"
        ),
        Equation(
            formula="min αᵢ′ (diag(V) + Dᵢ) αᵢ,   Dᵢ[j, l] = ⟨hᵢ − hⱼ, hᵢ − hₗ⟩",
            meaning="over the simplex; site i's next head is Σⱼ αᵢⱼ headⱼ",
        ),
    ),
    settings=(
        SettingSource(
            name="strength", symbol="λ", paper="1", code="1", remark="0: no alignment, head and extractor alternate"
        ),
        SettingSource(name="head_epochs", paper="1", code="1", remark="beside the protocol's local_epochs"),
    ),
    exact=(
        "Equal h give weights in proportion to 1/V; a site without uncertainty, or alone, keeps its own head.",
        "In a phase, the other part has no step and keeps its bits, buffers apart.",
        "A class that no site of the round holds keeps its prototype; without one, it has no alignment term.",
    ),
    differences=Differences(
        compared="authors' code, PFLlib",
        rows=(
            Difference(
                point="optimiser of the head",
                paper="not established",
                code="authors: a rate of its own, 0.1; PFLlib: that of the extractor",
                ours="that of the extractor, also its momentum",
            ),
            Difference(
                point="prototypes",
                paper="not established",
                code="authors: weighted; PFLlib: not",
                ours="weighted",
            ),
            Difference(
                point="a class without a prototype",
                paper="not established",
                code="authors: the site's own mean; PFLlib: no term",
                ours="no term",
            ),
            Difference(
                point="quadratic program",
                paper="not established",
                code="cvxpy; eigenvalues below zero clipped",
                ours="active sets, exact",
            ),
            Difference(
                point="a site's own model",
                paper="received extractor, mixture of heads",
                code="the same",
                ours="received extractor, the head that the site trained last",
            ),
            Difference(
                point="an unseen domain",
                paper="not defined",
                code="not defined",
                ours="the mean of the heads, which is the head of the global model",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="mean feature vector of each class, of the received and of the trained extractor",
            shape="2 × classes held × features",
            reveals=(
                "a mean of few samples is close to a sample's own features; of one sample it is them. All sites "
                "receive the mean of a class that one site of a round holds alone"
            ),
            report="class_prototypes",
        ),
        Leaving(
            what="number of samples of each class in training",
            shape="classes",
            reveals="class shares, which the census told before",
            report="class_prototypes",
        ),
        Leaving(
            what="mean squared length of the features",
            shape="1 number",
            reveals="how much the features of the classes vary",
            report="class_prototypes",
        ),
        Leaving(
            what="loss, accuracy, count on validation, of the site's own model",
            shape="3 numbers",
            when="every round in which the site trains or judges a model, and once after the last",
            reveals="how well a model fitted to the site does on its data",
        ),
    ),
)
