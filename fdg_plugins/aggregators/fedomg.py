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

from fdg_plugins.aggregators.base import Direction, UpdateAggregator
from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.core.conflict import least_conflict
from fdg_plugins.core.matching import RELEASED_DAMPING, cancels, invariant_coefficients, match, moving_sites
from fdg_plugins.errors import FDGError
from fdg_plugins.values import check_choice, check_number, check_truth

LEAST_CONFLICT = "least_conflict"
CANCELLED = ("mean", LEAST_CONFLICT)


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
            with the updates.
        idle_below: updates shorter than this times the longest one are not matched, in [0, 0.5]; their sites keep their
            part of the mean update. 0 matches every update, as printed.
        cancelled: the direction if the matched updates cancel: ``"mean"``, the mean update (as printed), or
            ``"least_conflict"``, the direction closest to it that opposes no update.
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
    ) -> None:
        self.kappa = kappa
        self.rescale = rescale
        self.damping = damping
        self.idle_below = idle_below
        self.cancelled = cancelled
        super().__init__(weighting=weighting, server_lr=server_lr)

    def _validate(self) -> None:
        super()._validate()
        check_number("kappa", self.kappa, at_least=0.0)
        check_truth("rescale", self.rescale)
        check_number("damping", self._damping, at_least=0.0)
        check_number("idle_below", self.idle_below, at_least=0.0, at_most=0.5)
        check_choice("cancelled", self.cancelled, CANCELLED)

    @property
    def _damping(self) -> float:
        """The number that ``damping`` is or names; what names none is returned as it is."""
        names: Mapping[Any, Any] = self.named_values["damping"]
        return names.get(self.damping, self.damping) if isinstance(self.damping, str) else self.damping

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        """Return the coefficients ``[U]`` of d (Eq. 16); report gamma ``[U]``, F(gamma) and the duality gap.

        Raises ``FDGError`` if all weights are zero.
        """
        if not bool(weights.any()):
            raise FDGError("no site of the round has a weight above zero, and FedOMG needs weights that sum to one.")
        # Computed once all updates are there: a row per arrival would read every earlier update again.
        gram, damping = self.gram(contributions), self._damping
        moving = moving_sites(gram, self.idle_below)
        idle = tuple(each.site for each, moves in zip(contributions, moving.tolist(), strict=True) if not moves)
        if idle:
            self.info(f"not matched, since their updates are below idle_below {self.idle_below:g}: {', '.join(idle)}")
        matching = match(gram, weights, self.kappa, damping, moving)
        report = {
            "gamma": matching.weights.tolist(),
            "duality_gap": matching.gap,
            "objective": matching.objective,
            "idle": idle,
            "cancelled": cancels(gram, matching.weights),
        }
        if report["cancelled"] and self.cancelled == LEAST_CONFLICT and self.kappa > 0:
            return Direction(least_conflict(gram, weights), report)
        coefficients = invariant_coefficients(gram, weights, self.kappa, matching.weights, self.rescale, damping)
        return Direction(coefficients, report)
