# SPDX-License-Identifier: Apache-2.0
"""FedOMG: the server steps along a direction that suits all sites, found from their updates alone.

Equations: Eq. 15 -> :func:`fdg_plugins.core.matching.match`, with groups of sites in place of sites
-> :func:`fdg_plugins.core.grouping.match_groups`; Eq. 16 -> :func:`fdg_plugins.core.matching.invariant_coefficients`.

Shapes: updates ``[U, P]``, their Gram matrix ``[U, U]``, reference weights p and gamma ``[U]``, d ``[P]``.

Participation: the sites of the round only; one site gives ``d = (1 + kappa) g``.

Buffers: only trainable parameters are matched. Float buffers are averaged with p and not scaled by ``server_lr``;
integer buffers move by the largest update.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.aggregators.contributions import Contribution, Direction
from fdg_plugins.core.grouping import group_means, match_groups, relative_loss
from fdg_plugins.core.matching import (
    RELEASED_DAMPING,
    Matching,
    invariant_coefficients,
    match,
    matching_objective,
    moving_sites,
)
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.plugins import method
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.plugins.fields import NotNegative, Positive
from fdg_plugins.plugins.methods import METHODS

BY_DOMAIN = "domain"
IDLE_BELOW = 1e-3  # of the longest update: what is shorter has no direction to match


class FedOMGAggregator(UpdateAggregator):
    """On-server matching of the updates."""

    takes_rule = True
    reads_parts = True
    neutral = {"kappa": 0.0}

    def __init__(
        self,
        kappa: NotNegative = 0.5,
        server_lr: Positive = 0.05,
        rescale: bool = False,
        weighting: str | dict[str, Any] = "uniform",
        damping: NotNegative | Literal["released"] = 0.0,
        grouping: Literal["none", "domain"] = "none",
        over: str = BASE,
    ) -> None:
        self.kappa = kappa
        self.rescale = rescale
        self.damping = damping
        self.grouping = grouping
        self.over = over
        self._below = _rule_below(over)
        self.reads_effective_steps = self._below is not None and self._below.reads_effective_steps
        self.reads_census = f"the sites' domains (grouping {BY_DOMAIN!r})" if grouping == BY_DOMAIN else None
        super().__init__(weighting=weighting, server_lr=server_lr)

    @property
    def _damping(self) -> float:
        return self.damping if isinstance(self.damping, int | float) else RELEASED_DAMPING

    def check(self, contribution: Contribution) -> None:
        if self._below is not None:
            self._below.check(contribution)
        if self.grouping == BY_DOMAIN and contribution.site not in self.facts.domains:
            known = "'none' under a workflow that knows no domains"
            raise SettingsError(field="grouping", value=BY_DOMAIN, expected=known, site=contribution.site)

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        """Return the coefficients ``[U]`` of d (Eq. 16); report gamma ``[U]``, F(gamma) and the duality gap.

        Raises ``FDGError`` if all weights are zero.
        """
        if not bool(weights.any()):
            raise FDGError("no site of the round has a weight above zero, and FedOMG needs weights that sum to one.")
        # Computed once all updates are there: a row per arrival would read every earlier update again.
        gram = self.gram(contributions)
        weights, scale = self._reference(weights, contributions)
        means = None  # or the matrix [K, U] that takes the means of the groups
        if self.grouping == BY_DOMAIN:
            means = group_means([self.facts.domains[each.site] for each in contributions], weights)
        matching, moving = self._match(gram, weights, means)
        idle = tuple(each.site for each, moves in zip(contributions, moving.tolist(), strict=True) if not moves)
        if idle:
            short = "their updates" if means is None else "the mean updates of their domains"
            self.info(f"not matched, since {short} are below {IDLE_BELOW:g} of the longest: {', '.join(idle)}")
        report = {
            "gamma": matching.weights.tolist(),
            "duality_gap": matching.gap,
            "objective": scale * matching.objective,
            "idle": idle,
        }
        if means is not None:
            value = matching_objective(gram, weights, self.kappa, matching.weights, self._damping)
            report["grouping_loss"] = relative_loss(value, self._match(gram, weights, None)[0].objective)
        coefficients = invariant_coefficients(gram, weights, self.kappa, matching.weights, self.rescale, self._damping)
        return Direction(scale * coefficients, report)

    def _reference(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> tuple[torch.Tensor, float]:
        """Return p ``[U]`` on the simplex, and s, of the update ``g_FL = s sum_u p_u g_u``; s is 1 over FedAvg.

        The solution of Eq. 15 does not depend on s, by which F and d are multiplied.
        """
        if self._below is None:
            return weights, 1.0
        coefficients = self._below.direction(weights, contributions).coefficients
        scale = float(coefficients.sum())
        return coefficients / scale, scale

    def _match(
        self, gram: torch.Tensor, weights: torch.Tensor, means: torch.Tensor | None
    ) -> tuple[Matching, torch.Tensor]:
        """Return the solution of Eq. 15 with gamma ``[U]``, and a mask ``[U]`` of the sites that were matched."""
        if means is None:
            moving = moving_sites(gram, IDLE_BELOW)
            return match(gram, weights, self.kappa, self._damping, moving), moving
        matching, groups = match_groups(gram, weights, self.kappa, means, self._damping, IDLE_BELOW)
        return matching, ~(means[~groups] > 0).any(dim=0)


def _rule_below(key: str) -> UpdateAggregator | None:
    """Return the rule of this package that another direction starts from, by its method's key; None for FedAvg.

    Raises ``SettingsError`` for a rule that cannot stand below another: see :meth:`Method.stands_below`.
    """
    if key == BASE:
        return None
    record = METHODS.own().get(key)
    if record is None or record.aggregator is None or not record.stands_below:
        expected = f"{BASE!r}, or a method of this package whose step is one combination of whole updates"
        raise SettingsError(field="over", value=key, expected=expected)
    made: UpdateAggregator = record.aggregator()
    return made


METHOD = method.Method(
    key="fedomg",
    title="FedOMG",
    rank=5,
    line="the server steps along the direction that fits all sites, found from their updates alone",
    reference=method.Reference(
        "Nguyen et al.", "Federated Domain Generalization with Data-free On-server Matching Gradient", "ICLR", 2025
    ),
    classes=(FedOMGAggregator,),
    defaults=(
        method.Default(
            server={"kappa": 0.5, "server_lr": 0.05, "weighting": "uniform"}, source="FedOMG, Table 4 and Algorithm 1"
        ),
        method.Default(on="digits", server={"server_lr": 1.0}, source="ours: no paper has FedOMG on digits"),
        method.Default(on="label_skew", server={"server_lr": 1.0}, source="ours: from scratch, the paper states none"),
        method.Default(on="segmentation", server={"server_lr": 1.0}, source="ours: from scratch, no paper segments"),
    ),
    letters=(
        "gᵤ update of site u (local − global); p reference weights; g_FL = Σᵤ pᵤ gᵤ; γ weights that are "
        "sought; κ kappa; η server_lr"
    ),
    equations=(
        method.Equation(
            "γ* = argmin F(γ)  over  γ ≥ 0, Σᵤ γᵤ = 1\nF(γ) = ⟨Γg, g_FL⟩ + κ ‖g_FL‖ ‖Γg‖,   Γg = Σᵤ γᵤ gᵤ",
            "weights of the updates; needs no more of them than their Gram matrix",
            number="Eq. 15",
        ),
        method.Equation(
            "d = g_FL + κ ‖g_FL‖ / ‖Γ*g‖ · Γ*g", "direction, with Γ*g the matched update of γ*", number="Eq. 16"
        ),
        method.Equation("θ⁺ = θ + η d", "step of the server", number="Eq. 17"),
    ),
    settings=(
        method.SettingSource(
            "kappa",
            symbol="κ",
            paper="0.5 on PACS, VLCS and OfficeHome (Table 4)",
            code="0.25 (default of the code for federated learning)",
            remark="radius of the search around g_FL, relative to its length; 0 is FedAvg",
        ),
        method.SettingSource(
            "server_lr",
            symbol="η",
            paper="0.05 (Table 4), beside a pretrained network",
            code="0.5",
            remark="1 steps as far as FedAvg, plus kappa; 0.05 is very slow from scratch",
        ),
        method.SettingSource(
            "rescale",
            paper="d as in Eq. 16",
            code="d divided by 1 + κ²",
            remark="true divides as the authors' code does",
        ),
        method.SettingSource(
            "damping",
            paper="none",
            code="1e-4 under each root, after dividing by the mean length",
            remark="relative to the squared mean length of the updates; 0 as printed, released as in the code",
        ),
        method.SettingSource(
            "grouping",
            paper="none: one site per domain",
            code="none",
            remark="domain matches the mean update of each domain, so that a domain of many sites has one vote",
        ),
        method.SettingSource(
            "weighting",
            symbol="p",
            paper="uniform in Algorithm 1, sample counts in section 4.2",
            code="three different pre-scalings of the updates",
            remark="uniform, samples, or an object with a name and settings, such as ga",
        ),
        method.SettingSource(
            "over",
            paper="any rule may give g_FL (section 4.2); FedAvg's mean in all tables",
            remark="set by the name: fedomg+nova; not a rule that weighs rows apart, whose mean has no weights p",
        ),
    ),
    differences=method.Differences(
        rows=(
            method.Difference(
                "sign of the step", paper="minus, although updates point from global to local", code="plus", ours="plus"
            ),
            method.Difference(
                "solution of Eq. 15",
                paper="–",
                code="21 steps of SGD on a softmax",
                ours="to optimality, with the duality gap as certificate",
            ),
            method.Difference(
                "sites whose update is almost zero", paper="not mentioned", code="matched", ours="not matched"
            ),
            method.Difference(
                "BatchNorm's buffers", paper="not mentioned", code="never aggregated", ours="averaged with p"
            ),
            method.Difference(
                "SGD's momentum, weight decay, schedule",
                paper="not stated",
                code="0.9; 5e-4; times 0.1 after 80 % of the rounds",
                ours="as the code",
            ),
        )
    ),
    combined={
        "fedga": "in the authors' code, reported in neither paper",
        "fediir": (
            "reported in FedOMG's paper (Table 2), with FedIIR's strength at 1e-4 on PACS, VLCS and "
            "OfficeHome (Table 4)"
        ),
    },
)
