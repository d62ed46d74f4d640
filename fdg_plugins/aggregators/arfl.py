# SPDX-License-Identifier: Apache-2.0
"""ARFL: weights that turn away from sites on whose training images the global model has a high loss.

For federations in which some sites may hold corrupted data. A domain that is merely hard loses weight too, which is the
opposite of what FedDG-GA does.

Reference: Li, Ngai, Ye, Voigt, "Auto-weighted Robust Federated Learning with Corrupted Data Sources" (ARFL), ACM
Transactions on Intelligent Systems and Technology, 2022.

Equations: minimise ``sum_u alpha_u L_u + lambda/2 sum_u alpha_u^2 / n_u`` over the simplex, with
``lambda = strength * sum_u n_u`` -> :func:`~fdg_plugins.core.robust_weighting.risk_weights`.

Shapes: losses L, samples n and weights alpha ``[N]`` of the N sites seen so far; of a round, weights ``[U]`` and
updates ``[U, P]``.

Participation: the problem covers all sites seen so far. An absent site enters with the loss and the number of samples
that it last reported; a site that was never seen, or that takes no further part in the run, does not enter. The weights
of a round are its sites' part of alpha, rescaled to sum to one. If they are all zero, the parameters do not move.

Buffers: as under FedAvg, with these weights. Integer buffers move in any case.

Differences: after a round the authors' code asks the round's sites for the loss of the new model, in an extra trip, and
uses it in the next round. Here a site reports the loss of the model that it received, together with its update. With
all sites in every round this is the same loss in the same round, except in the first round, in which the authors' code
weights by samples. With partial participation, the losses of the round's sites are fresher here than in the authors'
code, and those of the previous round's sites are one model older. The authors' code redraws the sites of a round until
one has a weight.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.weighting_rule import ONLY_ROUND, RoundOf, Weighting
from fdg_plugins.core.robust_weighting import risk_weights
from fdg_plugins.errors import ContributionError
from fdg_plugins.messages import REPORT_TRAINING_LOSS
from fdg_plugins.values import check_number


class Risk(NamedTuple):
    """A site's latest report: the mean loss of a global model on its training split, and the size of that split."""

    loss: float
    samples: int


class ARFLWeighting(Weighting):
    """Weights in closed form from training losses (ARFL). Works with any direction.

    Args:
        strength: c_lambda > 0; lambda is c_lambda times the number of samples of all sites seen so far. Towards zero,
            all weight goes to the smallest loss; towards infinity, the weights become those by samples. 1 in the
            authors' code.
    """

    shares = REPORT_TRAINING_LOSS
    needs_training_loss = True

    def __init__(self, strength: float = 1.0) -> None:
        check_number("strength", strength, above=0)
        self.strength = strength
        self._risks: dict[str, Risk] = {}

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Update the known losses with the round's; return the weights of its sites, float64 ``[U]``.

        They sum to one, or are all zero if no site of the round has a weight. Raises ``ContributionError`` as
        :meth:`check`.
        """
        told = {contribution.site: risk_of(contribution) for contribution in contributions}
        known = {**self._risks, **told}
        self._risks = {site: risk for site, risk in known.items() if site not in round_of.gone}
        losses = [risk.loss for risk in self._risks.values()]
        samples = [risk.samples for risk in self._risks.values()]
        alpha = risk_weights(losses, samples, self.strength * sum(samples))
        of_all = dict(zip(self._risks, alpha.tolist(), strict=True))
        of_round = torch.tensor([of_all[site] for site in told], dtype=torch.float64)
        if len(told) == len(of_all):
            return of_round
        total = math.fsum(of_round.tolist())
        return of_round / total if total > 0 else of_round

    def check(self, contribution: Contribution) -> None:
        """Raise ``ContributionError`` for a contribution without a number of samples or a usable training loss."""
        risk_of(contribution)

    def report(self, contributions: Sequence[Contribution]) -> dict[str, list[Any]]:
        """Return the training losses ``[U]`` behind the weights, in the order of ``contributions``."""
        return {"training_losses": [risk_of(contribution).loss for contribution in contributions]}

    def state(self) -> dict[str, Any]:
        """Return the loss and the number of samples of every site seen so far."""
        return {"risks": {site: risk._asdict() for site, risk in self._risks.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self._risks = {
            str(site): Risk(float(risk["loss"]), int(risk["samples"])) for site, risk in state["risks"].items()
        }


def risk_of(contribution: Contribution) -> Risk:
    """Return the loss and the number of samples that a site reported with its update.

    Raises ``ContributionError`` naming the site if either is missing, or if the loss is negative or not finite.
    """
    if contribution.num_samples is None:
        raise ContributionError(
            f"site {contribution.site}: did not say its number of samples, from which its weight follows."
        )
    return Risk(_training_loss_of(contribution), contribution.num_samples)


def _training_loss_of(contribution: Contribution) -> float:
    """Return the loss of the model received on the site's training split; raise as :func:`risk_of`."""
    site, training = contribution.site, contribution.training
    if training is None or training.training_split is None:
        raise ContributionError(
            f"site {site}: did not say the loss of the model received on its training split, "
            "from which its weight follows."
        )
    loss = training.training_split[0].loss
    if not 0 <= loss < math.inf:  # also false for NaN
        raise ContributionError(
            f"site {site}: the loss of the model received on its training split is {loss}, "
            "expected a finite number of at least 0."
        )
    return loss
