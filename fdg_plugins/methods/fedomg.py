# SPDX-License-Identifier: Apache-2.0
"""FedOMG: the server steps along a direction that agrees with the updates of all sites, not only with their mean.

Choose it if the global model must work on a domain that no site has. The sites pay nothing: the direction is found at
the server, from the updates that FedAvg needs anyway.

Participation: the sites of the round only; an absent site has no weight, and a new one needs no history. One site gives
its own update times ``1 + kappa``. The weights of the round must not all be zero.

Buffers: only trainable parameters are matched. Float buffers are averaged with the reference weights and not scaled by
``server_lr``; integer buffers move by the largest update.

Cost: the server keeps all updates of a round and reads each twice, for the Gram matrix ``[U, U]`` and for the step.

Equation: gamma on the simplex minimises ``<Gg, g_FL> + kappa |g_FL| |Gg|``, ``Gg = sum_u gamma_u g_u``, and the server
steps by ``server_lr (g_FL + kappa |g_FL| / |Gg| Gg)``. Updates are ``[U, P]``, p and gamma ``[U]``; sites send nothing
more.

Settings: the direction is at most ``1 + kappa`` times as long as the mean update, so ``server_lr`` alone decides
whether the model keeps pace with its sites: 0.05 covers about a twentieth of the way per round. BatchNorm's statistics
go the whole way at once, and at a small ``server_lr`` are ahead of the parameters.

Edges: a site whose update is below ``idle_below`` of the longest is not matched, because an update of almost no length
would otherwise set the whole matched direction; the record names it (``idle``). Where the updates can be averaged to
zero, no direction agrees with all of them: the step is the mean update, or the closest one that opposes no site
(``cancelled``). ``damping`` makes the direction continuous where updates begin to cancel and, with
``idle_below`` 0, where one vanishes.

Many sites per domain: every site has a vote, so a domain with more sites has more. ``grouping`` ``domain`` matches the
means of the domains instead; the record says what that loses against the optimum over all sites (``grouping_loss``).

What to watch: gamma favours the updates that the mean serves worst. Such a site may hold the domain that matters, or be
wrong; ``outlier_ratio`` and ``clip_to_median`` limit the latter. The record has gamma, the duality gap and the cosines
of all updates with mean and direction: compare the smallest of each.

Paper or code: Eq. 15 to 17 with the code's plus sign, solved to the optimum. ``rescale`` and the code's ``server_lr``
give its step, not its approximate gamma.

Together: any objective, and any weighting as p, so FedDG-GA's weights also enter g_FL. FedNova and FedCSA set the
direction too and are refused. SCAFFOLD's and FedDIM's own exchanges are untouched by it.
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
    key="fedomg",
    title="FedOMG",
    rank=5,
    line="the server steps along the direction that fits all sites, found from their updates alone",
    reference=Reference(
        authors="Nguyen et al.",
        title="Federated Domain Generalization with Data-free On-server Matching Gradient",
        venue="ICLR",
        year=2025,
    ),
    acts=("direction",),
    aggregator="fdg_plugins.aggregators.fedomg:FedOMGAggregator",
    defaults=(
        Default(
            server={"kappa": 0.5, "server_lr": 0.05, "weighting": "uniform"}, source="FedOMG, Table 4 and Algorithm 1"
        ),
        Default(on="digits", server={"server_lr": 1.0}, source="ours: no paper has FedOMG on digits"),
        Default(on="label_skew", server={"server_lr": 1.0}, source="ours: from scratch, the paper states none"),
        Default(on="segmentation", server={"server_lr": 1.0}, source="ours: from scratch, no paper segments"),
    ),
    in_composition="p of Eq. 15 and 16 comes from the weighting; the updates come from any local objective.",
    letters=(
        "gᵤ update of site u (local − global); p reference weights; g_FL = Σᵤ pᵤ gᵤ; γ weights that "
        "are sought; κ kappa; η server_lr"
    ),
    equations=(
        Equation(
            number="Eq. 15",
            formula="γ* = argmin F(γ)  over  γ ≥ 0, Σᵤ γᵤ = 1\nF(γ) = ⟨Γg, g_FL⟩ + κ ‖g_FL‖ ‖Γg‖,   Γg = Σᵤ γᵤ gᵤ",
            meaning="weights of the updates; needs no more of them than their Gram matrix",
        ),
        Equation(
            number="Eq. 16",
            formula="d = g_FL + κ ‖g_FL‖ / ‖Γ*g‖ · Γ*g",
            meaning="direction, with Γ*g the matched update of γ*",
        ),
        Equation(number="Eq. 17", formula="θ⁺ = θ + η d", meaning="step of the server"),
    ),
    settings=(
        SettingSource(
            name="kappa",
            symbol="κ",
            paper="0.5 on PACS, VLCS and OfficeHome (Table 4)",
            code="0.25 (default of the code for federated learning)",
            remark="radius of the search around g_FL, relative to its length; 0 is FedAvg",
        ),
        SettingSource(
            name="server_lr",
            symbol="η",
            paper="0.05 (Table 4), beside a pretrained network",
            code="0.5",
            remark="1 steps as far as FedAvg, plus kappa; 0.05 is very slow from scratch",
        ),
        SettingSource(
            name="rescale",
            paper="d as in Eq. 16",
            code="d divided by 1 + κ²",
            remark="true divides as the authors' code does",
        ),
        SettingSource(
            name="damping",
            paper="none",
            code="1e-4 under each root, after dividing by the mean length",
            remark="relative to the squared mean length of the updates; 0 as printed, released as in the code",
        ),
        SettingSource(
            name="idle_below",
            paper="none",
            code="none",
            remark="updates below this times the longest are not matched; 0 matches every update, as printed",
        ),
        SettingSource(
            name="cancelled",
            paper="the mean update",
            code="the mean update",
            remark="if the matched updates cancel: mean, or least_conflict, the closest direction that opposes no site",
        ),
        SettingSource(
            name="grouping",
            paper="none: one site per domain",
            code="none",
            remark="domain matches the mean update of each domain, so that a domain of many sites has one vote",
        ),
        SettingSource(
            name="weighting",
            symbol="p",
            paper="uniform in Algorithm 1, sample counts in section 4.2",
            code="three different pre-scalings of the updates",
            remark="uniform, samples, or an object with a name and settings, such as ga",
        ),
    ),
    exact=(
        "κ = 0 is FedAvg (Corollary 1).",
        "One site gives (1 + κ) g, and so do equal updates.",
        "If the matched updates cancel (Γ*g = 0), or g_FL = 0, the direction is g_FL.",
        (
            "A site with a zero update, or one below idle_below, is not matched and keeps its part of g_FL; nearly "
            "equal updates make the Gram matrix singular, which the solver takes."
        ),
        "Scaling all updates by s > 0 scales d by s; permuting the sites permutes γ and leaves d.",
        "grouping domain with one site per domain is grouping none, bit for bit.",
    ),
    differences=Differences(
        rows=(
            Difference(
                point="sign of the step",
                paper="minus, although updates point from global to local",
                code="plus",
                ours="plus",
            ),
            Difference(
                point="solution of Eq. 15",
                paper="–",
                code="21 steps of SGD on a softmax",
                ours="to optimality, with the duality gap as certificate",
            ),
            Difference(
                point="roots of Eq. 15 and 16",
                paper="as printed",
                code="1e-4 added",
                ours="as printed; the other with damping released",
            ),
            Difference(
                point="sites whose update is almost zero",
                paper="not mentioned",
                code="matched",
                ours="not matched; idle_below 0 matches them",
            ),
            Difference(
                point="scale of d", paper="Eq. 16", code="divided by 1 + κ²", ours="Eq. 16; the other with rescale"
            ),
            Difference(
                point="weights p",
                paper="sample counts (4.2), uniform (Algorithm 1)",
                code="three different pre-scalings",
                ours="weighting",
            ),
            Difference(
                point="BatchNorm's buffers", paper="not mentioned", code="never aggregated", ours="averaged with p"
            ),
            Difference(
                point="SGD's momentum, weight decay, schedule",
                paper="not stated",
                code="0.9; 5e-4; times 0.1 after 80 % of the rounds",
                ours="as the code",
            ),
        ),
    ),
    together=(
        Together(method="fedga", source="in the authors' code, reported in neither paper"),
        Together(
            method="fediir",
            source=(
                "reported in FedOMG's paper (Table 2), with FedIIR's strength at 1e-4 on PACS, VLCS and OfficeHome "
                "(Table 4)"
            ),
        ),
    ),
)
