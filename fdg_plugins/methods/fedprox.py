# SPDX-License-Identifier: Apache-2.0
"""FedProx: a penalty on the squared distance keeps each site's parameters near those it received.

Choose it if the sites drift apart in many local steps on different data. It has no effect on a site that takes a single
step per round, because the penalty's gradient is zero there. It cannot be combined with FedNova, whose effective steps
the penalty would change.

Participation: as under FedAvg. Nothing is exchanged and nothing is kept, so absent and new sites need no rule.

Buffers: averaged as under FedAvg; the penalty does not include them.

Cost: a copy of the received parameters at each site, and their differences in a step.

Equation: a site minimises ``CE + strength/2 |theta_u - theta|^2`` over its trainable parameters, P values.

Settings: the pull acts through learning rate times ``strength`` times the number of steps. Far below one it does next
to nothing: at 1e-3, 0.1 and a hundred steps the product is 0.01, with momentum 0.9 about 0.1. More epochs or a larger
learning rate call for less.

Paper or code: the gradient of the paper's term is added to that of the loss. Under SGD with momentum, this is exactly
FedDG-GA's code. The benchmark's unsquared norms of single tensors are not reproduced.

Together: any weighting, and any direction that does not count steps.
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
    key="fedprox",
    title="FedProx",
    part="prox",
    part_title="Prox",
    rank=6,
    line="each site's parameters are held near those it received",
    reference=Reference(
        authors="Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith",
        title="Federated Optimization in Heterogeneous Networks",
        venue="MLSys",
        year=2020,
    ),
    acts=("step",),
    objective="fdg_plugins.objectives.fedprox:FedProxObjective",
    defaults=(
        Default(objective={"strength": 0.01}, source="FLARE's FedProx"),
        Default(on="photographs", objective={"strength": 0.1}, source="FedDG-GA's code"),
    ),
    in_composition="The sites minimise the loss with the term; weights and direction see only the updates that follow.",
    letters="θ parameters received, trainable ones; θᵤ those of site u; CE mean cross entropy of a batch; μ strength",
    equations=(Equation(formula="CE + μ/2 ‖θᵤ − θ‖²", meaning="what a site minimises, θ being fixed for the round"),),
    settings=(
        SettingSource(
            name="strength",
            symbol="μ",
            paper="of FedProx: not established; FedDIM, which compares with it: not stated",
            code="FedDG-GA 0.1; FLARE 0.01; PFLlib 0; FedDG benchmark: grid 1e-3, 1e-2, 1e-1",
            remark="0 is FedAvg, bit for bit",
        ),
    ),
    exact=(
        "strength 0 is FedAvg, bit for bit.",
        "A site that takes one step takes FedAvg's, for any strength: the term's gradient is zero at θ.",
        "Of ½‖x − b‖² the local fixed point is (b + μ θ) / (1 + μ).",
    ),
    differences=Differences(
        compared="FedDG-GA, FedDG benchmark",
        rows=(
            Difference(
                point="the term",
                paper="μ/2 times the squared norm of all parameters together",
                code=(
                    "FedDG-GA: its gradient, in the momentum buffer, which is the same; FedDG benchmark: norms of "
                    "the tensors, not squared, which is another method"
                ),
                ours="as the paper; its gradient μ (θᵤ − θ) is added to that of the loss",
            ),
            Difference(
                point="weight decay",
                paper="not established",
                code="not established",
                ours="the optimiser's, beside the term",
            ),
        ),
    ),
    together=(Together(method="fedga", source="reported in FedDG-GA's paper (Tables 1 and 2)"),),
)
