# SPDX-License-Identifier: Apache-2.0
"""Per-FedAvg: the sites look for a common model from which one step on a site's own data leads to a good one.

Choose it if each site needs a model of its own and can take a step or a few on labelled images to have it.

Participation: as under FedAvg. A site's own model is a copy of the received one after `adaptation_steps` steps; it is
judged and discarded. The held-out domain is judged by the received model, because adaptation needs labels.

Buffers: averaged as under FedAvg; in a step, those of the first part's pass.

Cost: two gradients of half a batch per step, with the Hessian's product four of a third of a batch.

Equation: first order, ``w - eta grad L_2(w - alpha grad L_1(w))``; with the Hessian, its gradient v becomes
``v - alpha H_3(w) v``, the product by a central difference.

Settings: `adaptation` is alpha over the learning rate, so alpha falls with it. Zero is FedAvg, bit for bit.

What to watch: a part of a batch is half or a third of it, so batches should be larger than elsewhere. A batch with
fewer than two samples for each part serves as every part.

Paper or code: public code draws two batches for a step and trains twice per round; here a round has as many steps as
under FedAvg (`local_epochs` doubles them). The step of adaptation is plain, whatever the optimiser's momentum.

Together: any weighting and direction.
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
    key="perfedavg",
    title="Per-FedAvg",
    part="peravg",
    part_title="PerAvg",
    rank=19,
    line="a common model from which one step on a site's own data leads to a good one",
    reference=Reference(
        authors="Fallah, Mokhtari, Ozdaglar",
        title=("Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning Approach"),
        venue="NeurIPS",
        year=2020,
    ),
    acts=("objective", "step", "personal"),
    objective="fdg_plugins.objectives.perfedavg:PerFedAvgObjective",
    in_composition="The sites take these steps; weights and direction see no more than the updates that follow.",
    letters=(
        "w parameters; L₁, L₂, L₃ losses of the parts of a batch; η learning rate; a adaptation; α = a η; H₃ Hessian "
        "of L₃ at w; δ difference"
    ),
    equations=(
        Equation(formula="w′ = w − α grad L₁(w)", meaning="step of adaptation, plain SGD"),
        Equation(formula="w⁺ = w − η v,   v = grad L₂(w′)", meaning="first-order form of a site's step"),
        Equation(
            formula="w⁺ = w − η (v − α H₃ v)",
            meaning="form with the Hessian; H₃ v by a central difference over the length δ",
        ),
        Equation(formula="w − α grad L(w)", meaning="a site's own model, from the received one; judged and discarded"),
    ),
    settings=(
        SettingSource(
            name="adaptation",
            symbol="a",
            paper="not established",
            code="PFLlib, FedOMG: 1, α is the learning rate",
            remark="0 is FedAvg, bit for bit",
        ),
        SettingSource(name="form", paper="both", code="PFLlib: first_order", remark="first_order or hessian_product"),
        SettingSource(
            name="difference",
            symbol="δ",
            paper="not established",
            remark="used by hessian_product, which needs float32 (precision): in bfloat16 it is mostly rounding; the "
            "default is ours",
        ),
        SettingSource(name="adaptation_steps", paper="1", remark="steps to a site's own model"),
    ),
    exact=(
        "adaptation 0 is FedAvg, bit for bit.",
        "Of ½ a w² the first-order gradient is a (1 − α a) w, that with the Hessian a (1 − α a)² w, for any δ.",
    ),
    differences=Differences(
        compared="PFLlib",
        rows=(
            Difference(
                point="batches of a step",
                paper="two or three, drawn independently",
                code="two of the protocol's size",
                ours="two or three parts of one batch of the protocol's size",
            ),
            Difference(
                point="momentum of the step",
                paper="none",
                code="none",
                ours="the protocol's, 0.9 by default: a step is up to ten times as long",
            ),
            Difference(
                point="training per round",
                paper="once",
                code="twice: the server calls it a second time",
                ours="once",
            ),
            Difference(
                point="δ",
                paper="a constant factor of v",
                code="not implemented",
                ours="the length by which parameters move along v",
            ),
            Difference(
                point="under FedOMG",
                paper="FedOMG's Table 1, without details",
                code="not released",
                ours="FedOMG's step on all parameters",
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
