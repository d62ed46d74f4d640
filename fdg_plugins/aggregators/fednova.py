# SPDX-License-Identifier: Apache-2.0
"""FedNova: each update is divided by how far its steps went, so that a site that takes more of them pulls no harder.

Reference: Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization" (FedNova), NeurIPS 2020. For federations whose sites take different numbers of steps in a round.

Equations: with ``|a_u|`` (the paper's ``||a_u||_1``) the displacement of site u's steps under a constant unit gradient
over its learning rate, ``tau`` itself for plain SGD and :func:`~fdg_plugins.core.normalization.effective_steps` with
momentum, and ``tau_eff = sum_u p_u |a_u|``:

- ``theta+ = theta + server_lr * tau_eff * sum_u p_u Delta_u / |a_u|`` -> :func:`normalized_coefficients`

*Participation*: p and tau_eff are of the sites of the round; one site gives its own model back. *Buffers*: float
buffers averaged with p, which no number of steps divides; integer buffers moved by the largest update. *Differences*:
the paper's server momentum is left out, and so is its form for proximal steps, for which sites would have to report
another ``|a_u|``; the authors' code adds up the increments of momentum and proximal term, which is neither's.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from fdg_plugins.aggregators.base import Direction, UpdateAggregator
from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.measures import measures
from fdg_plugins.core.gram import gram_matrix
from fdg_plugins.errors import ContributionError


class FedNovaAggregator(UpdateAggregator):
    """The weighted mean of normalised updates, as far as the mean site went.

    Args:
        weighting: reference weights p: ``"samples"`` (the paper), ``"uniform"``, or ``{"name": ..., settings}``.
        server_lr: eta_g > 0, the factor of the step; one in the paper.
    """

    reads_parts: ClassVar[bool] = True
    reads_step_lengths: ClassVar[bool] = True
    excludes: ClassVar[Mapping[str, str]] = {
        "prox": "the proximal term shortens the steps, which the effective steps that the sites report leave out"
    }

    def check(self, contribution: Contribution) -> None:
        """Refuse a contribution that does not say how far its steps went, or says farther than any momentum takes them.

        With momentum towards one, tau steps go ``1 + 2 + ... + tau`` far; no momentum below one goes farther.
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
        """Return ``tau_eff p_u / |a_u|``; report ``|a_u|``, and lengths and cosines as under FedAvg."""
        steps = effective_steps_of(contributions)
        coefficients = normalized_coefficients(weights, steps)
        gram = gram_matrix([self.trainable(contribution) for contribution in contributions])
        measured = measures(gram, weights, coefficients)
        return Direction(coefficients, {**measured, "effective_steps": steps.tolist()})


def normalized_coefficients(weights: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Return ``tau_eff p_u / |a_u|`` with ``tau_eff = sum_v p_v |a_v|``, float64 ``[U]``.

    ``weights``: p ``[U]``. ``steps``: ``|a_u|`` ``[U]``, above zero. Where all are equal, the coefficients are p, to
    the bit: FedAvg.
    """
    if bool((steps == steps[0]).all()):
        return weights
    return weights * (math.fsum((weights * steps).tolist()) / steps)


def effective_steps_of(contributions: Sequence[Contribution]) -> torch.Tensor:
    """Return ``|a_u|`` as the sites reported it, float64 ``[U]``."""
    reported = [contribution.training.effective_steps for contribution in contributions if contribution.training]
    return torch.tensor(reported, dtype=torch.float64)
