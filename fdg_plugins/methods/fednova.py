# SPDX-License-Identifier: Apache-2.0
"""FedNova: each update is divided by its effective number of local steps, so more steps do not pull harder.

Equations: the effective steps ``|a_u|`` (the paper's ``||a_u||_1``) -> :func:`~fdg_plugins.core.steps.effective_steps`;
with ``tau_eff = sum_u p_u |a_u|``, the step ``server_lr * tau_eff * sum_u p_u Delta_u / |a_u|``
-> :func:`normalized_coefficients`.

Shapes: updates Delta ``[U, P]``; p, ``|a|`` and the coefficients ``[U]``.

Participation: p and tau_eff are those of the sites of the round. With one site, the new global model is that site's
model; if all sites take equally many steps, the step is FedAvg's, to the bit.

Buffers: float buffers are averaged with p, without normalisation; integer buffers move by the largest update.
"""

import math
from collections.abc import Sequence

import torch

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.aggregators.contributions import Contribution, Direction
from fdg_plugins.plugins import method


class FedNovaAggregator(UpdateAggregator):
    """The weighted mean of normalised updates, rescaled to the weighted mean number of effective steps."""

    reads_parts = True
    reads_effective_steps = True
    neutral = {}

    def check(self, contribution: Contribution) -> None:
        """Raise ``ContributionError`` if the effective steps are missing or outside what tau steps can give.

        They are at least tau, and at most ``1 + 2 + ... + tau``, the limit for momentum towards one.
        """
        training = contribution.training
        if training is None:
            contribution.refuse("did not say how far its steps went, by which its update is divided")
        farthest = training.steps * (training.steps + 1) / 2
        if not training.steps <= training.effective_steps <= farthest:
            came = f"effective_steps is {training.effective_steps:g} after {training.steps} steps"
            contribution.refuse(f"{came}, expected from {training.steps} to {farthest:g}")

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        """Return ``tau_eff p_u / |a_u|`` ``[U]``; report ``|a_u|`` ``[U]``."""
        told = [contribution.training.effective_steps for contribution in contributions if contribution.training]
        steps = torch.tensor(told, dtype=torch.float64)
        return Direction(normalized_coefficients(weights, steps), {"effective_steps": steps.tolist()})


def normalized_coefficients(weights: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Return ``tau_eff p_u / |a_u|`` with ``tau_eff = sum_v p_v |a_v|``, float64 ``[U]``.

    If all steps are equal, the coefficients are p, bit for bit: FedAvg.

    Args:
        weights: p ``[U]``.
        steps: ``|a_u|`` ``[U]``, above zero.
    """
    if bool((steps == steps[0]).all()):
        return weights
    return weights * (math.fsum((weights * steps).tolist()) / steps)


METHOD = method.Method(
    key="fednova",
    title="FedNova",
    rank=10,
    line=("each update is normalized by its effective number of steps, so that more steps give no more influence"),
    reference=method.Reference(
        "Wang, Liu, Liang, Joshi, Poor",
        "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
        "NeurIPS",
        2020,
    ),
    classes=(FedNovaAggregator,),
    defaults=(
        method.Default(
            protocol={"keep_momentum": False}, source="FedNova: the number of steps is that of a new momentum"
        ),
        *method.BY_SAMPLES,
        method.SGD_ON_SEGMENTATION,
    ),
    letters=(
        "Δᵤ update of site u (local − global); τᵤ its steps; m momentum of its SGD; aᵤ displacement of "
        "its steps under a constant unit gradient, over the learning rate (the paper's ‖aᵤ‖₁); p "
        "reference weights; η server_lr"
    ),
    equations=(
        method.Equation(
            "aᵤ = τᵤ,   with momentum  (τᵤ − m (1 − m^τᵤ) / (1 − m)) / (1 − m)",
            "what a site reports as its effective steps",
        ),
        method.Equation("τ_eff = Σᵤ pᵤ aᵤ", "steps of the mean site, over the sites of the round"),
        method.Equation("θ⁺ = θ + η τ_eff Σᵤ pᵤ Δᵤ / aᵤ", "step of the server"),
    ),
    settings=(method.WEIGHTING, method.SettingSource("server_lr", symbol="η", paper="1", remark="factor of the step")),
    differences=method.Differences(
        compared="authors' code, Flower",
        rows=(
            method.Difference("weights p", code="Flower: over all sites", ours="over the sites of the round"),
            method.Difference(
                "scale of the step",
                paper="τ_eff",
                code="Flower: scales that are made to sum to one, so that τ_eff cancels",
                ours="τ_eff",
            ),
            method.Difference(
                "proximal term",
                paper="aᵤ = (1 − (1 − lr μ)^τᵤ) / (lr μ), without momentum",
                code="authors: with momentum the increments of both are added, which normalises neither",
                ours="refused",
            ),
        ),
    ),
    combined={"fedga": "reported in FedDG-GA's paper (Tables 1 and 2), without code"},
)
