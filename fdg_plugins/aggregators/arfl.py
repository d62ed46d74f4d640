# SPDX-License-Identifier: Apache-2.0
"""ARFL: weights that turn away from sites on whose training images the global model has a high loss.

Reference: Li, Ngai, Ye, Voigt, "Auto-weighted Robust Federated Learning with Corrupted Data Sources" (ARFL), ACM
Transactions on Intelligent Systems and Technology, 2022. For federations some of whose sites may hold corrupted data;
where a domain is merely hard it loses weight too, which is the opposite of what FedDG-GA does.

Equations: the closed form is in :mod:`fdg_plugins.core.robust_weighting`. *Participation*: the problem is that of all
sites seen so far, an absent one with the loss and the number of samples that it last told; a round takes its sites'
share, rescaled to one. A site that was never seen is not yet part of it. If no site of the round has a weight, all of
theirs are zero, and a direction along them leaves the parameters. *Buffers*: as FedAvg, with these weights; those that
count move in any case.

Differences: the authors' code asks the sites of a round for the loss of the model that came of it, in one more trip,
and uses it in the next round; here a site tells the loss of the model that it received, with its update. With all
sites in every round that is the same loss in the same round, but for the first round, in which the code weighs by
samples. With some of the sites, those of the round itself have fresher losses than in the code, and those of the
round before one of a model that is one round older. The code draws the sites of a round again until one has a weight.
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
    """What a site told last: the mean loss of a global model on its training split, and the samples of the split."""

    loss: float
    samples: int


class ARFLWeighting(Weighting):
    """Weights in closed form from training losses (ARFL); usable under any direction.

    Args:
        strength: c_lambda > 0; lambda is c_lambda times the samples of all sites seen so far. Towards zero all weight
            goes to the smallest loss, towards infinity the weights are those by samples. 1 in the authors' code.
    """

    learns = True
    shares = REPORT_TRAINING_LOSS
    needs_training_loss = True

    def __init__(self, strength: float = 1.0) -> None:
        check_number("strength", strength, above=0)
        self.strength = strength
        self._risks: dict[str, Risk] = {}

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Take the round's losses; return the weights of its sites, float64 ``[U]``: zeros if none of them has any."""
        told = {contribution.site: risk_of(contribution) for contribution in contributions}
        self._risks = {**self._risks, **told}
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
        """Refuse a contribution without a number of samples or a usable loss, from which its weight follows."""
        risk_of(contribution)

    def report(self, contributions: Sequence[Contribution]) -> dict[str, list[Any]]:
        """Return the losses from which the weights followed."""
        return {"training_losses": [risk_of(contribution).loss for contribution in contributions]}

    def state(self) -> dict[str, Any]:
        """Return loss and samples of all sites seen so far."""
        return {"risks": {site: risk._asdict() for site, risk in self._risks.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back loss and samples of all sites seen so far."""
        self._risks = {
            str(site): Risk(float(risk["loss"]), int(risk["samples"])) for site, risk in state["risks"].items()
        }


def risk_of(contribution: Contribution) -> Risk:
    """Return what a site told with its update; raise ``ContributionError`` naming the site if it cannot be used."""
    site, training = contribution.site, contribution.training
    if contribution.num_samples is None:
        raise ContributionError(f"site {site}: did not say its number of samples, from which its weight follows.")
    if training is None or training.training_split is None:
        raise ContributionError(
            f"site {site}: did not say the loss of the model received on its training split, "
            "from which its weight follows."
        )
    loss = training.training_split[0].loss
    if not 0 <= loss < math.inf:  # which NaN is not either
        raise ContributionError(
            f"site {site}: the loss of the model received on its training split is {loss}, "
            "expected a finite number of at least 0."
        )
    return Risk(loss, contribution.num_samples)
