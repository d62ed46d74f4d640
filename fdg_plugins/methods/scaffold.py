# SPDX-License-Identifier: Apache-2.0
"""SCAFFOLD: each local step is corrected by the difference between the site's own gradient and that of all sites.

Choose it if the sites drift apart while they train, because their data differ. The paper defines it for plain SGD. Each
site keeps and reports a control variate as large as the model, from which its update follows exactly.

Participation: an absent site keeps its control variate; a new one starts from zero. The server's variate is the mean
over all sites that train in the run. A report that the server refuses breaks this mean by that site's change.

Buffers: averaged as under FedAvg; control variates cover the trainable parameters only.

Cost: twice FedAvg's traffic in both directions.

Equation: a step follows ``grad CE + c - c_u``; afterwards ``c_u+ = c_u - c - Delta_u / (eta_u a_u)``, and the server
adds ``1/N sum_S (c_u+ - c_u)`` to c. Down comes c, up goes the change, each P values in the parameters' own shapes.

Settings: none of its own, but three of the run matter. With momentum, a_u is FedNova's number of steps, which goes
beyond the paper. With few of many sites per round, a c_u is as old as its site's last turn and corrects for a model
long gone. ``update_precision`` bfloat16 is tolerated by the server's check within its rounding.

What to watch: a site that loses its folder starts again from zero, while c still contains its old control variate
divided by N, by which it is off from then on. One site alone has ``c = c_u`` and trains as under FedAvg.

Paper or code: the paper's option II and its mean over all N sites. FedDG-GA's code leaves out the learning rate, with
which its controls are so small that it is nearly FedAvg.

Together: any weighting and direction; c is summed without weights. SGD is required, all parameters must travel, and
differential privacy refuses the change, since it gives the update away.
"""

from fdg_plugins.plugins.method import Default, Difference, Differences, Equation, Leaving, Method, Reference, Together

METHOD = Method(
    key="scaffold",
    title="SCAFFOLD",
    rank=9,
    line="each step of a site is corrected by how its own gradient differs from that of all sites",
    reference=Reference(
        authors="Karimireddy, Kale, Mohri, Reddi, Stich, Suresh",
        title="SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
        venue="ICML",
        year=2020,
    ),
    acts=("step",),
    objective="fdg_plugins.objectives.scaffold:SCAFFOLDObjective",
    defaults=(
        Default(
            protocol={"momentum": 0.0, "keep_momentum": False},
            server={"server_lr": 1.0, "weighting": "uniform"},
            source="SCAFFOLD, Algorithm 1: plain SGD, every site the same",
        ),
        Default(
            on="segmentation",
            protocol={"optimizer": "sgd", "learning_rate": 0.05},
            source="ours: SGD where others use Adam; the rate was not tuned",
        ),
    ),
    in_composition=(
        "The sites take corrected steps; weights and direction see no more than the updates that "
        "follow, and c is the same under any of them."
    ),
    letters=(
        "Δᵤ update of site u (local − global); ηᵤ its learning rate; aᵤ how far its steps went (its "
        "number of steps, for plain SGD); cᵤ its control variate; c the server's; S sites of the "
        "round; N all sites that train in the run; CE mean cross entropy of a batch"
    ),
    equations=(
        Equation(
            formula="g = grad CE + c − cᵤ", meaning="gradient of a local step, c and cᵤ being fixed for the round"
        ),
        Equation(
            number="option II",
            formula="cᵤ⁺ = cᵤ − c − Δᵤ / (ηᵤ aᵤ)",
            meaning="the mean gradient along the way, after the training; cᵤ⁺ − cᵤ is sent, cᵤ⁺ stays at the site",
        ),
        Equation(formula="c⁺ = c + 1/N Σ_S (cᵤ⁺ − cᵤ)", meaning="at the server; c and all cᵤ are zero at the start"),
    ),
    exact=(
        "Round 0 sends nothing down and trains as FedAvg, bit for bit.",
        "After every round c is the mean of cᵤ over all N sites, whoever took part with however many steps.",
        (
            "A report that the server refuses or never sees has moved cᵤ and not c: from then on the two "
            "differ by that change over N."
        ),
        "A round that the server repeats starts from the cᵤ that the site had before it.",
        (
            "With one full-batch step, all sites in every round and equal quadratic curvature, all local "
            "models coincide from round 1 on."
        ),
        "An absent site keeps its cᵤ; a new one starts from zero.",
    ),
    differences=Differences(
        compared="FedDG-GA",
        rows=(
            Difference(point="option", paper="I, the gradient at the model received, or II", code="II", ours="II"),
            Difference(
                point="control of a site",
                paper="update over learning rate times steps",
                code="without the learning rate: at 1e-3 a thousand times too small, nearly FedAvg",
                ours="as the paper",
            ),
            Difference(
                point="momentum",
                paper="none",
                code="0.9, on the corrected gradient",
                ours="the protocol's; with it aᵤ is FedNova's number of effective steps",
            ),
            Difference(
                point="c at the server",
                paper="mean of the changes, times the share of sites in the round",
                code="mean of cᵤ with the weights of the sites",
                ours="as the paper, under any weights",
            ),
            Difference(
                point="weights of the updates",
                paper="uniform",
                code="FedDG-GA's",
                ours="weighting of the job; uniform in its recipe",
            ),
            Difference(
                point="under FedOMG",
                paper="not reported",
                code="–",
                ours="offered: FedOMG matches the updates, c is as without",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="change of the control variate",
            shape="the trainable parameters",
            reveals="the update, exactly, whatever a filter did to the update itself",
            report="control_variate",
        ),
    ),
    together=(
        Together(
            method="fedga",
            source=(
                "reported in FedDG-GA's paper (Tables 1 and 2), whose code weighs the controls as well, which "
                "is not done here"
            ),
        ),
    ),
)
