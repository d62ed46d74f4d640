# SPDX-License-Identifier: Apache-2.0
"""FedDG-GA: FedAvg with weights that follow the sites' generalization gaps.

Equations: Eq. 3 -> :func:`fdg_plugins.core.adjustment.adjust_weights`; the record below.

Shapes: gaps ``[U]`` of the round's sites, weights a ``[N]`` of all known sites, of which a round uses ``[U]``.

Participation: every known site has a weight, and a round uses its sites' weights rescaled to one. A new site starts at
the mean; an absent site keeps its weight. In round 0 there is no previous local model, hence no gap.

Buffers: as under FedAvg, with the adjusted weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.weightings import ONLY_ROUND, RoundOf, Weighting
from fdg_plugins.core.adjustment import adjust_weights, gap_variance, weights_of_round, with_new_sites
from fdg_plugins.messages import REPORT_GAP
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative, Positive


class FedGAAggregator(FedAvgAggregator):
    """FedAvg with generalization adjustment as its weighting."""

    neutral = {"step_size": 0.0}

    def __init__(
        self, step_size: float = 0.05, normalizer: str = "max", server_lr: Positive = 1.0, decay: str = "linear"
    ) -> None:
        self.step_size = step_size
        self.normalizer = normalizer
        self.decay = decay
        weighting = {"name": "ga", "step_size": step_size, "normalizer": normalizer, "decay": decay}
        super().__init__(weighting, server_lr)


@dataclass
class FedDGGAWeighting(Weighting):
    """Weights that follow the sites' generalization gaps. Works with any direction.

    A site that is absent from the round, or whose gap is missing or was refused, keeps its weight.
    """

    shares = REPORT_GAP

    step_size: NotNegative = 0.05
    normalizer: Literal["max", "max_abs"] = "max"
    decay: Literal["linear", "none"] = "linear"
    _weights: dict[str, float] = field(default_factory=dict, init=False)  # of all known sites

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Adjust the weights of all known sites (Eq. 3); return the round's, float64 ``[U]``, rescaled to sum one."""
        sites = [contribution.site for contribution in contributions]
        known = with_new_sites(self._weights, [*round_of.sites, *sites])
        gaps = {contribution.site: contribution.reports.get(REPORT_GAP) for contribution in contributions}
        left = 1.0 if self.decay == "none" else 1 - round_of.number / round_of.total
        step = left * self.step_size  # d_r
        self._weights = adjust_weights(known, gaps, step, self.normalizer)
        of_round = weights_of_round(self._weights, sites)
        return torch.tensor([of_round[site] for site in sites], dtype=torch.float64)

    def report(self, contributions: Sequence[Contribution]) -> dict[str, Any]:
        """Return the gaps ``[U]`` as reported, None for a site without one; and their variance (Eq. 2)."""
        gaps = [contribution.reports.get(REPORT_GAP) for contribution in contributions]
        return {"gaps": gaps, "gap_variance": gap_variance(gaps)}

    def state(self) -> dict[str, Any]:
        return {"weights": dict(self._weights)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._weights = {str(site): float(weight) for site, weight in state["weights"].items()}


METHOD = method.Method(
    key="fedga",
    title="FedDG-GA",
    part="ga",
    rank=2,
    line=("weights that follow the sites' generalization gaps: sites that the global model serves poorly gain weight"),
    reference=method.Reference(
        "Zhang, Xu, Yao, Zhang, Tian, Wang",
        "Federated Domain Generalization with Generalization Adjustment",
        "CVPR",
        2023,
    ),
    classes=(FedGAAggregator, FedDGGAWeighting),
    defaults=(
        method.Default(weighting={"step_size": 0.05}, source="FedDG-GA, the paper's step"),
        method.Default(protocol={"batch_norm": "reestimate"}, source="ours: the gap compares models, not statistics"),
    ),
    letters=(
        "a weights of all known sites, from 1/N each; θ global model of round r; θᵤ site u's own model "
        "after its training; R rounds; d step_size"
    ),
    equations=(
        method.Equation(
            "gapᵤ = lossᵤ(θ of round r) − lossᵤ(θᵤ of round r − 1)",
            "both on the same data of the site; positive: the global model is worse there",
        ),
        method.Equation(
            "a'ᵤ = max(0, aᵤ + dᵣ (gapᵤ − mean) / maxᵥ (gapᵥ − mean))\naᵤ ← a'ᵤ / Σᵥ a'ᵥ",
            "weights of round r, from those of the round before",
            number="Eq. 3",
        ),
        method.Equation("dᵣ = (1 − r/R) d", "step, which falls linearly to nothing; r counts from 0"),
    ),
    settings=(
        method.SettingSource(
            "step_size",
            symbol="d",
            paper="0.05",
            code="0.2",
            remark="the most that a weight can gain in a round; 0 is uniform FedAvg",
        ),
        method.SettingSource(
            "normalizer",
            paper="max: the largest deviation from the mean gap",
            code="max_abs: the largest absolute gap, without a mean",
        ),
        method.SettingSource(
            "decay", paper="linear; none in half of Table 3", remark="none keeps the step d in all rounds"
        ),
        method.SettingSource(
            "server_lr",
            paper="1",
            remark="factor of the weighted mean update; of the direction, where there is another",
        ),
        method.SettingSource(
            "gap_split",
            paper="train: the text says training data",
            code="validation",
            remark="split on which the losses of the gap are measured",
        ),
        method.SettingSource(
            "batch_norm",
            paper="not said",
            code="average",
            remark="statistics with which both models of the gap are evaluated",
        ),
        method.SettingSource(
            "metric",
            paper="loss",
            code="accuracy, with the sign turned",
            remark="of GapReportFilter, in the sites' part of the job",
        ),
    ),
    differences=method.Differences(
        rows=(
            method.Difference("extra factor", paper="–", code="1/3", ours="– (a third of step_size gives it)"),
            method.Difference(
                "equal gaps", paper="not said", code="division by zero if all are zero", ours="weights stay"
            ),
        )
    ),
    leaves=(
        method.Leaving(
            "generalization gap", "1 number", "the difference of two losses on the site's data", report="gap"
        ),
        method.Leaving(
            "loss, accuracy, count on the training split, of both models",
            "6 numbers",
            "how well either model does on the site's data",
            when="only with gap_split train",
            report="gap",
        ),
        method.NORMALIZATION,
    ),
)
