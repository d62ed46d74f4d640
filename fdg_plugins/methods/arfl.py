# SPDX-License-Identifier: Apache-2.0
"""ARFL: weights that turn away from sites on whose training images the global model has a high loss.

Equations: :func:`~fdg_plugins.core.weighting.risk_weights`, with ``lambda = strength * sum_u n_u``.

Shapes: losses L, samples n and weights alpha ``[N]`` of the N sites seen so far; of a round, weights ``[U]``.

Participation: the problem covers all sites seen so far. An absent site enters with the loss and the number of samples
that it last reported; a site that was never seen, or that takes no further part in the run, does not enter. The weights
of a round are its sites' part of alpha, rescaled to sum to one. If they are all zero, the parameters do not move.

Buffers: as under FedAvg, with these weights. Integer buffers move in any case.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.weightings import ONLY_ROUND, RoundOf, Weighting
from fdg_plugins.core.weighting import risk_weights
from fdg_plugins.messages import REPORT_TRAINING_LOSS
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import Positive


class Risk(NamedTuple):
    """A site's latest report: the mean loss of a global model on its training split, and the size of that split."""

    loss: float
    samples: int


@dataclass
class ARFLWeighting(Weighting):
    """Weights in closed form from training losses (ARFL). Works with any direction."""

    shares = REPORT_TRAINING_LOSS

    strength: Positive = 1.0
    _risks: dict[str, Risk] = field(default_factory=dict, init=False)  # of all known sites

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
        risk_of(contribution)

    def report(self, contributions: Sequence[Contribution]) -> dict[str, list[Any]]:
        """Return the training losses ``[U]`` behind the weights, in the order of ``contributions``."""
        return {"training_losses": [risk_of(contribution).loss for contribution in contributions]}

    def state(self) -> dict[str, Any]:
        return {"risks": {site: risk._asdict() for site, risk in self._risks.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._risks = {
            str(site): Risk(float(risk["loss"]), int(risk["samples"])) for site, risk in state["risks"].items()
        }


def risk_of(contribution: Contribution) -> Risk:
    """Return the loss and the number of samples that a site reported; raise ``ContributionError`` without them."""
    split = contribution.training.training_split if contribution.training is not None else None
    loss, samples = math.nan if split is None else split[0].loss, contribution.num_samples
    if samples is None or not 0 <= loss < math.inf:  # also false for NaN
        came = f"the loss of the model received is {loss} on {samples} training samples"
        contribution.refuse(f"{came}, expected a finite number of at least 0, from which its weight follows")
    return Risk(loss, samples)


METHOD = method.Method(
    key="arfl",
    title="ARFL",
    rank=13,
    line="weights that turn away from sites on whose training images the global model has a high loss",
    reference=method.Reference(
        "Li, Ngai, Ye, Voigt",
        "Auto-weighted Robust Federated Learning with Corrupted Data Sources",
        "ACM Transactions on Intelligent Systems and Technology",
        2022,
    ),
    classes=(ARFLWeighting,),
    defaults=(method.Default(protocol={"gap_split": "train"}, source="ARFL: the loss is that of the training images"),),
    letters=(
        "Lᵤ mean loss of the model received on site u's training split; nᵤ its training samples; N all "
        "sites seen so far; α their weights; c strength; λ = c Σᵤ nᵤ, a sum over N; pᵤ = nᵤ / Σᵥ nᵥ"
    ),
    equations=(
        method.Equation(
            "minimise  Σᵤ αᵤ Lᵤ + λ/2 Σᵤ αᵤ² / nᵤ   over  α ≥ 0, Σᵤ αᵤ = 1",
            "the problem of which α is the solution, over all sites seen so far",
        ),
        method.Equation("αᵤ = nᵤ max(η − Lᵤ, 0) / λ", "its solution"),
        method.Equation(
            "η_p = (Σ nᵢ Lᵢ + λ) / Σ nᵢ   over the p smallest losses",
            "η is the last of them before the first that is below the p-th loss",
        ),
    ),
    settings=(
        method.SettingSource(
            "strength",
            symbol="c",
            paper="not established; FedDG-GA, which compares with it: not stated",
            code="1",
            remark=(
                "above 0; belongs to the scale of the loss, the mean cross entropy: towards 0 all weight goes to "
                "the smallest loss, towards infinity the weights are those by samples"
            ),
        ),
        method.SettingSource(
            "gap_split",
            paper="training data",
            code="training data",
            remark="must be train, so that sites evaluate on their training split",
        ),
    ),
    differences=method.Differences(
        rows=(
            method.Difference(
                "when a loss is measured",
                code="after a round, of its outcome, by the sites of that round, in a separate trip",
                ours="with the update, of the model received: the same in the same round where all sites take part",
            ),
            method.Difference(
                "with some of the sites in a round",
                code="a site drawn now has the loss of when it was drawn last",
                ours="a site drawn now has that of now; one drawn only in the last round, of one model before",
            ),
            method.Difference(
                "weights of the first round", code="by samples", ours="from the losses of the initial model"
            ),
        )
    ),
    leaves=(method.TRAINING_LOSS,),
)
