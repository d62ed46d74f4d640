# SPDX-License-Identifier: Apache-2.0
"""FedBABU: the extractor alone is trained and travels, under a head that never changes; sites fine-tune a copy.

Choose it if each site needs a model of its own and can fine-tune one, but should keep nothing between rounds.

Participation: as under FedAvg. A site's own model is a fine-tuned copy of the received one, which is judged and
discarded. The held-out domain is judged by the received model with the initial head.

Buffers: averaged as under FedAvg.

Cost: `fine_tune_epochs` more passes over the training split wherever a site judges its own model, which is in every
round in which it trains and once after the last.

Equation: a site minimises CE over the extractor's parameters, the head being the initial one at all sites.

Settings: `travels` `body` is what fixes the head. With `travels` `all` the training is FedAvg's, bit for bit.

What to watch: under pretrained weights the head is random still. A selection by source validation judges the received
model with that head, which no site has fitted to its classes.

Paper or code: the optimiser and its rate are the protocol's in training and in fine-tuning. Fine-tuning is of the whole
model, as in the authors' code, or of one part.

Together: any weighting and direction but those that read the head's rows (FedCSA), and not FedDIM or FedIIR.
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
    Together,
)

METHOD = Method(
    key="fedbabu",
    title="FedBABU",
    part="babu",
    part_title="BABU",
    rank=18,
    line="the extractor alone is trained and travels, under the initial head; each site judges a fine-tuned copy too",
    reference=Reference(
        authors="Oh, Kim, Yun",
        title="FedBABU: Toward Enhanced Representation for Federated Image Classification",
        venue="ICLR",
        year=2022,
    ),
    acts=("personal",),
    objective="fdg_plugins.objectives.fedbabu:FedBABUObjective",
    protocol=("travels",),
    defaults=(Default(protocol={"travels": "body"}, source="FedBABU: the head is never trained in the federation"),),
    in_composition="The sites train the extractor; weights and direction see its updates, the head has none.",
    letters="φ extractor; h head; h⁰ its initial value; CE mean cross entropy of a batch; E fine_tune_epochs",
    equations=(
        Equation(
            formula="min_φ CE(h⁰(φ(x)), y)", meaning="what a site minimises, with h⁰ at all sites and in all rounds"
        ),
        Equation(
            formula="(φᵤ, hᵤ) = SGD_E(φ, h⁰)",
            meaning="a site's own model: E epochs on its training split from the received one, judged and discarded",
        ),
    ),
    settings=(
        SettingSource(
            name="fine_tune_epochs",
            symbol="E",
            paper="not established",
            code="5; PFLlib, FedOMG 10",
            remark="0: the received model itself",
        ),
        SettingSource(name="fine_tune", paper="all, head or body", code="all", remark="all, head or body"),
        SettingSource(name="travels", paper="body", code="body", remark="all is FedAvg with fine-tuning at evaluation"),
    ),
    exact=(
        "The head has its initial bits in every round and at every site.",
        "travels all trains as FedAvg, bit for bit.",
        "fine_tune_epochs 0 judges the received model twice.",
    ),
    differences=Differences(
        rows=(
            Difference(
                point="learning rate",
                paper="not established",
                code="0.1, falling at 1/2 and 3/4 of the rounds",
                ours="the protocol's; in fine-tuning that of the round",
            ),
            Difference(
                point="averaging",
                paper="not established",
                code="uniform; PFLlib: by the number of images",
                ours="weighting, by the number of images unless set",
            ),
            Difference(
                point="when sites fine-tune",
                paper="at evaluation",
                code="at evaluation; PFLlib: the site's live model, after the last round",
                ours="whenever a model is judged, on a copy",
            ),
            Difference(
                point="under FedOMG",
                paper="FedOMG's Table 1, without details",
                code="not released",
                ours="FedOMG's step on the extractor",
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
    together=(Together(method="fedomg", source="reported in FedOMG's paper (Table 1)"),),
)
