# SPDX-License-Identifier: Apache-2.0
"""FedOMG: the server steps along a direction that suits all sites, found from their updates alone.

For federations whose global model must work on a domain that no site has. It costs the sites nothing: they send no more
than under FedAvg.

Reference: Nguyen et al., "Federated Domain Generalization with Data-free On-server Matching Gradient" (FedOMG), ICLR
2025.

Equations:

- Eq. 15, weights gamma of the matched update -> :func:`fdg_plugins.core.matching.match`
- Eq. 16, ``d = g_FL + kappa |g_FL| / |Gamma* g| Gamma* g`` -> :func:`fdg_plugins.core.matching.invariant_coefficients`
- Γ*g = 0: no direction agrees with all updates -> :func:`fdg_plugins.core.conflict.least_conflict`
- the means of groups of sites in place of the sites -> :func:`fdg_plugins.core.grouping.match_groups`
- Eq. 17, ``theta+ = theta + server_lr * d`` -> :class:`FedOMGAggregator`

Shapes: updates ``[U, P]``, their Gram matrix ``[U, U]``, reference weights p and gamma ``[U]``, d ``[P]``.

Participation: the sites of the round only; one site gives ``d = (1 + kappa) g``.

Buffers: only trainable parameters are matched. Float buffers are averaged with p and not scaled by ``server_lr``;
integer buffers move by the largest update.

Differences: see :mod:`fdg_plugins.core.matching`. The authors' code leaves BatchNorm's buffers at their initial values.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.returned import Direction
from fdg_plugins.core.conflict import least_conflict
from fdg_plugins.core.grouping import group_gram, group_means, group_weights, match_groups, relative_loss
from fdg_plugins.core.matching import (
    RELEASED_DAMPING,
    Matching,
    cancels,
    invariant_coefficients,
    match,
    matching_objective,
    moving_sites,
)
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.values import check_choice, check_number, check_truth

LEAST_CONFLICT = "least_conflict"
CANCELLED = ("mean", LEAST_CONFLICT)
BY_DOMAIN = "domain"
GROUPINGS = ("none", BY_DOMAIN)


class FedOMGAggregator(UpdateAggregator):
    """On-server matching of the updates.

    Args:
        kappa: radius of the search around the mean update, relative to its length; at least zero, which is FedAvg. The
            paper uses 0.5 on PACS, VLCS and OfficeHome (Table 4), the authors' FL code 0.25.
        server_lr: eta_g > 0, the factor of the step. 0.05 is the paper's value (Table 4), meant for a pretrained
            network; the authors' code has 0.5. With one, the step is as long as FedAvg's, plus kappa.
        rescale: whether to divide the direction by ``1 + kappa**2``, as the authors' code does.
        weighting: reference weights p: ``"uniform"`` (Algorithm 1), ``"samples"`` (section 4.2), or
            ``{"name": ..., settings}``.
        damping: delta >= 0 under the roots of Eq. 15 and 16, relative to the squared mean length of the updates; 0 as
            printed, ``"released"`` for the 1e-4 of the authors' code. Above zero, the direction changes continuously
            with the updates, except where one becomes idle: with ``idle_below`` 0 there too.
        idle_below: updates, or means of domains, shorter than this times the longest one are not matched, in [0, 0.5];
            their sites keep their part of the mean update. 0 matches every update, as printed.
        cancelled: the direction if the matched updates cancel: ``"mean"``, the mean update (as printed), or
            ``"least_conflict"``, the direction closest to it that opposes no update.
        grouping: what is matched: ``"none"``, the sites' updates, as printed, or ``"domain"``, the mean update of each
            domain, for federations with many sites per domain. The report then says what that loses.
    """

    reads_parts: ClassVar[bool] = True
    named_values: ClassVar[Mapping[str, Mapping[str, float]]] = {"damping": {"released": RELEASED_DAMPING}}
    neutral: ClassVar[Mapping[str, Any] | None] = {"kappa": 0.0}

    def __init__(
        self,
        kappa: float = 0.5,
        server_lr: float = 0.05,
        rescale: bool = False,
        weighting: str | dict[str, Any] = "uniform",
        damping: float | str = 0.0,
        idle_below: float = 1e-3,
        cancelled: str = "mean",
        grouping: str = "none",
    ) -> None:
        self.kappa = kappa
        self.rescale = rescale
        self.damping = damping
        self.idle_below = idle_below
        self.cancelled = cancelled
        self.grouping = grouping
        super().__init__(weighting=weighting, server_lr=server_lr)

    def _validate(self) -> None:
        super()._validate()
        check_number("kappa", self.kappa, at_least=0.0)
        check_truth("rescale", self.rescale)
        check_number("damping", self._damping, at_least=0.0)
        check_number("idle_below", self.idle_below, at_least=0.0, at_most=0.5)
        check_choice("cancelled", self.cancelled, CANCELLED)
        check_choice("grouping", self.grouping, GROUPINGS)

    @property
    def _damping(self) -> float:
        """The number that ``damping`` is or names; what names none is returned as it is."""
        names: Mapping[Any, Any] = self.named_values["damping"]
        return names.get(self.damping, self.damping) if isinstance(self.damping, str) else self.damping

    @property
    def reads_census(self) -> str | None:
        """The domains of the sites, if their means are matched."""
        return f"the sites' domains (grouping {BY_DOMAIN!r})" if self.grouping == BY_DOMAIN else None

    def check(self, contribution: Contribution) -> None:
        """Raise ``SettingsError`` if sites are grouped by domain and the workflow has not said which the site holds."""
        if self.grouping == BY_DOMAIN and contribution.site not in self.facts.domains:
            raise SettingsError(
                f"site {contribution.site}: its domain is not known, by which grouping {BY_DOMAIN!r} groups: it needs "
                "the workflow FederationController."
            )

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        """Return the coefficients ``[U]`` of d (Eq. 16); report gamma ``[U]``, F(gamma) and the duality gap.

        Raises ``FDGError`` if all weights are zero.
        """
        if not bool(weights.any()):
            raise FDGError("no site of the round has a weight above zero, and FedOMG needs weights that sum to one.")
        # Computed once all updates are there: a row per arrival would read every earlier update again.
        gram = self.gram(contributions)
        means = self._means(weights, contributions)
        matching, moving = self._match(gram, weights, means)
        idle = tuple(each.site for each, moves in zip(contributions, moving.tolist(), strict=True) if not moves)
        if idle:
            short = "their updates" if means is None else "the mean updates of their domains"
            self.info(f"not matched, since {short} are below idle_below {self.idle_below:g}: {', '.join(idle)}")
        report = {
            "gamma": matching.weights.tolist(),
            "duality_gap": matching.gap,
            "objective": matching.objective,
            "idle": idle,
            "cancelled": cancels(gram, matching.weights),
        }
        if means is not None:
            report["grouping_loss"] = self._grouping_loss(gram, weights, matching)
        if report["cancelled"] and self.cancelled == LEAST_CONFLICT and self.kappa > 0:
            scale = 1 + self.kappa**2 if self.rescale else 1.0
            return Direction(_closest(gram, weights, means) / scale, report)
        coefficients = invariant_coefficients(gram, weights, self.kappa, matching.weights, self.rescale, self._damping)
        return Direction(coefficients, report)

    def _means(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> torch.Tensor | None:
        """Return the matrix ``[K, U]`` that takes the means of the groups; None if every site is matched by itself."""
        if self.grouping != BY_DOMAIN:
            return None
        return group_means([self.facts.domains[each.site] for each in contributions], weights)

    def _match(
        self, gram: torch.Tensor, weights: torch.Tensor, means: torch.Tensor | None
    ) -> tuple[Matching, torch.Tensor]:
        """Return the solution of Eq. 15 with gamma ``[U]``, and a mask ``[U]`` of the sites that were matched."""
        if means is None:
            moving = moving_sites(gram, self.idle_below)
            return match(gram, weights, self.kappa, self._damping, moving), moving
        matching, groups = match_groups(gram, weights, self.kappa, means, self._damping, self.idle_below)
        return matching, ~(means[~groups] > 0).any(dim=0)

    def _grouping_loss(self, gram: torch.Tensor, weights: torch.Tensor, matching: Matching) -> float:
        """Return how far F at the gamma of the groups is above its optimum over all sites, relative to it."""
        value = matching_objective(gram, weights, self.kappa, matching.weights, self._damping)
        return relative_loss(value, self._match(gram, weights, None)[0].objective)


def _closest(gram: torch.Tensor, weights: torch.Tensor, means: torch.Tensor | None) -> torch.Tensor:
    """Return the coefficients ``[U]`` of the direction closest to the mean that no update, or group mean, opposes."""
    if means is None:
        return least_conflict(gram, weights)
    shares = group_weights(weights, means)
    return weights + (least_conflict(group_gram(gram, means), shares) - shares) @ means
