# SPDX-License-Identifier: Apache-2.0
"""FedNova: each update is divided by its effective number of local steps, so more steps do not pull harder.

For federations whose sites take different numbers of steps in a round.

Reference: Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization" (FedNova), NeurIPS 2020.

Equations. ``|a_u|`` (the paper's ``||a_u||_1``) is the displacement of site u's steps under a constant unit gradient,
divided by its learning rate: tau for plain SGD, and with momentum
:func:`~fdg_plugins.core.steps.effective_steps`. With ``tau_eff = sum_u p_u |a_u|``:

- ``theta+ = theta + server_lr * tau_eff * sum_u p_u Delta_u / |a_u|`` -> :func:`normalized_coefficients`

Shapes: updates Delta ``[U, P]``; p, ``|a|`` and the coefficients ``[U]``.

Participation: p and tau_eff are those of the sites of the round. With one site, the new global model is that site's
model; if all sites take equally many steps, the step is FedAvg's, to the bit.

Buffers: float buffers are averaged with p, without normalisation; integer buffers move by the largest update.

Differences: the paper's server momentum is not implemented, nor is its form for proximal steps, for which sites would
have to report a different ``|a_u|``. The authors' code adds the increments of momentum and proximal term, which matches
neither.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.returned import Direction
from fdg_plugins.errors import ContributionError


class FedNovaAggregator(UpdateAggregator):
    """The weighted mean of normalised updates, rescaled to the weighted mean number of effective steps.

    Args:
        weighting: reference weights p: ``"samples"`` (the paper), ``"uniform"``, or ``{"name": ..., settings}``.
        server_lr: eta_g > 0, the factor of the step; one in the paper.
    """

    reads_parts: ClassVar[bool] = True
    reads_effective_steps: ClassVar[bool] = True
    neutral: ClassVar[Mapping[str, Any] | None] = {}

    def check(self, contribution: Contribution) -> None:
        """Raise ``ContributionError`` if the effective steps are missing or outside what tau steps can give.

        They are at least tau, and at most ``1 + 2 + ... + tau``, the limit for momentum towards one.
        """
        site, training = contribution.site, contribution.training
        if training is None:
            raise ContributionError(f"site {site}: did not say how far its steps went, by which its update is divided.")
        farthest = training.steps * (training.steps + 1) / 2
        if not training.steps <= training.effective_steps <= farthest:
            raise ContributionError(
                f"site {site}: effective_steps is {training.effective_steps:g} after {training.steps} steps, "
                f"expected from {training.steps} to {farthest:g}."
            )

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        """Return ``tau_eff p_u / |a_u|`` ``[U]``; report ``|a_u|`` ``[U]``."""
        steps = effective_steps_of(contributions)
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


def effective_steps_of(contributions: Sequence[Contribution]) -> torch.Tensor:
    """Return ``|a_u|`` as reported by the sites, float64 ``[U]``."""
    reported = [contribution.training.effective_steps for contribution in contributions if contribution.training]
    return torch.tensor(reported, dtype=torch.float64)
