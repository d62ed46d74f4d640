# SPDX-License-Identifier: Apache-2.0
"""FedDG-GA: FedAvg with weights that follow the sites' generalization gaps.

Equations: ``gap_u = loss_u(global, round r) - loss_u(local, round r - 1)``; Eq. 3,
``a'_u = a_u + (1 - r/R) d (gap_u - mean) / max_v (gap_v - mean)``, clipped at zero and rescaled to sum one
-> :func:`fdg_plugins.core.adjustment.adjust_weights`; then FedAvg with a.

Shapes: gaps ``[U]`` of the round's sites, weights a ``[N]`` of all known sites, of which a round uses ``[U]`` with
updates ``[U, P]``.

Participation: every known site has a weight, and a round uses its sites' weights rescaled to one. A new site starts at
the mean; an absent site keeps its weight. In round 0 there is no previous local model, hence no gap.

Buffers: as under FedAvg, with the adjusted weights.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch

from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.weightings import ONLY_ROUND, RoundOf, Weighting
from fdg_plugins.core.adjustment import adjust_weights, decayed_step, weights_of_round, with_new_sites
from fdg_plugins.messages import REPORT_GAP
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.plugins.fields import NotNegative, Positive, check_parameters
from fdg_plugins.plugins.method import (
    Default,
    Difference,
    Differences,
    Equation,
    Leaving,
    Method,
    Reference,
    SettingSource,
)


class FedGAAggregator(FedAvgAggregator):
    """FedAvg with generalization adjustment as its weighting.

    Args:
        step_size: d >= 0; 0.05 in the paper, 0.2 in its code; zero is FedAvg with uniform weights.
        normalizer: ``"max"`` (paper) or ``"max_abs"`` (released code).
        server_lr: eta_g > 0, the factor of the mean update; one in the paper.
    """

    neutral: ClassVar[Mapping[str, Any] | None] = {"step_size": 0.0}

    def __init__(self, step_size: float = 0.05, normalizer: str = "max", server_lr: Positive = 1.0) -> None:
        self.step_size = step_size
        self.normalizer = normalizer
        super().__init__({"name": "ga", "step_size": step_size, "normalizer": normalizer}, server_lr)


class FedDGGAWeighting(Weighting):
    """Weights that follow the sites' generalization gaps (FedDG-GA, CVPR 2023). Works with any direction.

    A site that is absent from the round, or whose gap is missing or was refused, keeps its weight.

    Args:
        step_size: d >= 0, the largest gain of a weight in round 0; zero keeps the weights uniform.
        normalizer: ``"max"``, the largest deviation from the mean gap (paper), or ``"max_abs"``, the largest absolute
            gap (released code).
    """

    shares = REPORT_GAP
    needs_reports = True

    def __init__(self, step_size: NotNegative = 0.05, normalizer: Literal["max", "max_abs"] = "max") -> None:
        self.step_size = step_size
        self.normalizer = normalizer
        check_parameters(self)
        self._weights: dict[str, float] = {}

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Adjust the weights of all known sites (Eq. 3); return the round's, float64 ``[U]``, rescaled to sum one."""
        sites = [contribution.site for contribution in contributions]
        known = with_new_sites(self._weights, [*round_of.sites, *sites])
        gaps = {contribution.site: contribution.reports.get(REPORT_GAP) for contribution in contributions}
        step = decayed_step(self.step_size, round_of.number, round_of.total)
        self._weights = adjust_weights(known, gaps, step, self.normalizer)
        of_round = weights_of_round(self._weights, sites)
        return torch.tensor([of_round[site] for site in sites], dtype=torch.float64)

    def report(self, contributions: Sequence[Contribution]) -> dict[str, list[Any]]:
        """Return the gaps ``[U]`` as reported, None for a site without one."""
        return {"gaps": [contribution.reports.get(REPORT_GAP) for contribution in contributions]}

    def state(self) -> dict[str, Any]:
        return {"weights": dict(self._weights)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._weights = {str(site): float(weight) for site, weight in state["weights"].items()}


METHOD = Method(
    key="fedga",
    title="FedDG-GA",
    part="ga",
    line="weights that follow the sites' generalization gaps: sites that the global model serves poorly gain weight",
    reference=Reference(
        authors="Zhang, Xu, Yao, Zhang, Tian, Wang",
        title="Federated Domain Generalization with Generalization Adjustment",
        venue="CVPR",
        year=2023,
    ),
    classes=(FedGAAggregator, FedDGGAWeighting),
    defaults=(
        Default(weighting={"step_size": 0.05}, source="FedDG-GA, the paper's step"),
        Default(protocol={"batch_norm": "reestimate"}, source="ours: the gap compares models, not statistics"),
    ),
    letters=(
        "a weights of all known sites, from 1/N each; θ global model of round r; θᵤ site u's own "
        "model after its training; R rounds; d step_size"
    ),
    equations=(
        Equation(
            formula="gapᵤ = lossᵤ(θ of round r) − lossᵤ(θᵤ of round r − 1)",
            meaning="both on the same data of the site; positive: the global model is worse there",
        ),
        Equation(
            number="Eq. 3",
            formula="a'ᵤ = max(0, aᵤ + dᵣ (gapᵤ − mean) / maxᵥ (gapᵥ − mean))\naᵤ ← a'ᵤ / Σᵥ a'ᵥ",
            meaning="weights of round r, from those of the round before",
        ),
        Equation(formula="dᵣ = (1 − r/R) d", meaning="step, which falls linearly to nothing; r counts from 0"),
    ),
    settings=(
        SettingSource(
            name="step_size",
            symbol="d",
            paper="0.05",
            code="0.2",
            remark="the most that a weight can gain in a round; 0 is uniform FedAvg",
        ),
        SettingSource(
            name="normalizer",
            paper="max: the largest deviation from the mean gap",
            code="max_abs: the largest absolute gap, without a mean",
        ),
        SettingSource(
            name="server_lr",
            paper="1",
            remark="factor of the weighted mean update; of the direction, where there is another",
        ),
        SettingSource(
            name="gap_split",
            paper="train: the text says training data",
            code="validation",
            remark="split on which the losses of the gap are measured",
        ),
        SettingSource(
            name="batch_norm",
            paper="not said",
            code="average",
            remark="statistics with which both models of the gap are judged",
        ),
        SettingSource(
            name="metric",
            paper="loss",
            code="accuracy, with the sign turned",
            remark="of GapReportFilter, in the sites' part of the job",
        ),
    ),
    differences=Differences(
        rows=(
            Difference(
                point="data of the gap",
                paper="training data",
                code="validation split",
                ours="validation split, or gap_split train",
            ),
            Difference(point="metric of the gap", paper="loss", code="accuracy", ours="loss, or metric accuracy"),
            Difference(
                point="normaliser",
                paper="largest deviation from the mean",
                code="largest absolute gap, no mean",
                ours="max, or max_abs",
            ),
            Difference(
                point="BatchNorm's statistics in the gap",
                paper="not said",
                code="averaged; each site's own as training left them",
                ours="measured anew for both models, or batch_norm average",
            ),
            Difference(point="extra factor", paper="–", code="1/3", ours="– (a third of step_size gives it)"),
            Difference(
                point="equal gaps", paper="not said", code="division by zero if all are zero", ours="weights stay"
            ),
        )
    ),
    leaves=(
        Leaving(
            what="generalization gap",
            shape="1 number",
            reveals="the difference of two losses on the site's data",
            report="gap",
        ),
        Leaving(
            what="loss, accuracy, count on the training split, of both models",
            shape="6 numbers",
            when="only with gap_split train",
            reveals="how well either model does on the site's data",
            report="gap",
        ),
        Leaving(
            what="sums, sums of squares and counts of the inputs of each BatchNorm layer over the training images",
            shape="2 numbers per channel, 1 per layer",
            when="only with batch_norm reestimate and a network with BatchNorm: every round, once after the last",
            reveals="means and variances of features over all training images",
            report="normalization_statistics",
        ),
    ),
)
