# SPDX-License-Identifier: Apache-2.0
"""FedNova: each update is divided by its effective number of steps, so more steps do not pull harder.

Choose it if the sites take different numbers of steps in a round. If all take the same number, it is FedAvg, bit for
bit.

Participation: the weights and the mean number of steps are those of the sites of the round. One site gives its own
model. Nothing is kept between rounds; SGD's momentum starts from zero in every round, as the formula assumes.

Buffers: float buffers are averaged with the reference weights, without normalisation; integer buffers move by the
largest update.

Equation: ``theta+ = theta + server_lr tau_eff sum_u p_u Delta_u / |a_u|`` with ``tau_eff = sum_u p_u |a_u|``. Beyond
the update, one number per site is read, its effective steps ``|a_u|``; coefficients are ``[U]``.

Settings: with equal ``local_epochs`` a larger site takes more steps, and weights by samples count its size a second
time. FedNova removes the effect of the steps; with uniform weights besides, size no longer counts at all. With momentum
0.9, ``|a_u|`` is near ten times the number of steps once these are many.

What to watch: the formula assumes a fixed learning rate within a round, which the protocol has, and a gradient that is
constant along the way. Weight decay does not enter it. The update of a site with few steps is scaled up to ``tau_eff``
steps, its noise included.

Paper or code: the authors' code is followed for SGD with and without momentum. Their server momentum and their sum of
momentum's and the proximal term's increments are not.

Together: any weighting, and objectives whose steps are SGD's own, sharpness-aware ones among them. Adam and AdamW are
refused, because the learning rate does not say how far their steps go.
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
    key="fednova",
    title="FedNova",
    rank=10,
    line="each update is normalized by its effective number of steps, so that more steps give no more influence",
    reference=Reference(
        authors="Wang, Liu, Liang, Joshi, Poor",
        title="Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
        venue="NeurIPS",
        year=2020,
    ),
    acts=("direction",),
    aggregator="fdg_plugins.aggregators.fednova:FedNovaAggregator",
    defaults=(
        Default(protocol={"keep_momentum": False}, source="FedNova: the number of steps is that of a new momentum"),
        Default(on="photographs", server={"server_lr": 1.0, "weighting": "samples"}, source="FedNova"),
        Default(on="digits", server={"server_lr": 1.0, "weighting": "uniform"}, source="domains of one size"),
        Default(on="label_skew", server={"weighting": "samples"}, source="FedAvg"),
        Default(
            on="segmentation",
            protocol={"optimizer": "sgd", "learning_rate": 0.05},
            source="ours: SGD where others use Adam; the rate was not tuned",
        ),
    ),
    in_composition=(
        "p comes from the weighting, in both places; the updates come from any local objective whose term does not "
        "shorten the steps."
    ),
    letters=(
        "Δᵤ update of site u (local − global); τᵤ its steps; m momentum of its SGD; aᵤ displacement "
        "of its steps under a constant unit gradient, over the learning rate (the paper's ‖aᵤ‖₁); p "
        "reference weights; η server_lr"
    ),
    equations=(
        Equation(
            formula="aᵤ = τᵤ,   with momentum (τᵤ − m (1 − m^τᵤ) / (1 − m)) / (1 − m)",
            meaning="what a site reports as its effective steps",
        ),
        Equation(formula="τ_eff = Σᵤ pᵤ aᵤ", meaning="steps of the mean site, over the sites of the round"),
        Equation(formula="θ⁺ = θ + η τ_eff Σᵤ pᵤ Δᵤ / aᵤ", meaning="step of the server"),
    ),
    settings=(
        SettingSource(
            name="weighting",
            symbol="p",
            paper="numbers of samples",
            remark="samples, uniform, or an object with a name and settings, such as ga",
        ),
        SettingSource(name="server_lr", symbol="η", paper="1", remark="factor of the step"),
    ),
    exact=(
        "Equal numbers of steps are FedAvg, bit for bit, and so is one site alone.",
        "A site with twice the steps of the same gradient counts by pᵤ, not twice that.",
        "Float buffers are averaged with p; integer buffers move by the largest update.",
        "A site that does not say how far its steps went is refused by name.",
        "An objective that shortens steps or trains parts in turn, which aᵤ as reported leaves out, is refused.",
    ),
    differences=Differences(
        compared="authors' code, Flower",
        rows=(
            Difference(
                point="weights p",
                paper="not established",
                code="Flower: over all sites",
                ours="over the sites of the round",
            ),
            Difference(
                point="scale of the step",
                paper="τ_eff",
                code="Flower: scales that are made to sum to one, so that τ_eff cancels",
                ours="τ_eff",
            ),
            Difference(
                point="proximal term",
                paper="aᵤ = (1 − (1 − lr μ)^τᵤ) / (lr μ), without momentum",
                code="authors: with momentum the increments of both are added, which normalises neither",
                ours="refused",
            ),
            Difference(point="momentum at the server", paper="not established", code="authors: an option", ours="none"),
            Difference(
                point="under FedDG-GA's weights",
                paper="reported by FedDG-GA",
                code="none released",
                ours="p is FedDG-GA's, in both places",
            ),
            Difference(
                point="under FedOMG",
                paper="not reported",
                code="–",
                ours="refused: both set the direction",
            ),
        ),
    ),
    together=(Together(method="fedga", source="reported in FedDG-GA's paper (Tables 1 and 2), without code"),),
)
