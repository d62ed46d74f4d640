# SPDX-License-Identifier: Apache-2.0
"""FedDG-GA: FedAvg whose weights follow the sites' generalization gaps.

Reference: Zhang, Xu, Yao, Zhang, Tian, Wang, "Federated Domain Generalization with Generalization Adjustment"
(FedDG-GA), CVPR 2023. For federations in which averaging serves some domains worse than others.

Equations: Eq. 3 in :mod:`fdg_plugins.core.adjustment`, with its degenerate cases and differences. *Participation*:
all known sites have a weight, and a round takes its sites' share of it; a new site starts at the mean, an
absent one keeps its own. *Buffers*: as FedAvg, with the adjusted weights. The gaps come from the filters
:class:`~fdg_plugins.filters.GapReportFilter` at the sites and :class:`~fdg_plugins.filters.GapCheckFilter` here.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from fdg_plugins.aggregators.fedavg import FedAvgAggregator


class FedGAAggregator(FedAvgAggregator):
    """FedAvg with generalization adjustment as its weighting.

    Args:
        step_size: d >= 0; 0.05 in the paper, 0.2 in its code; zero is FedAvg with uniform weights.
        normalizer: ``"max"`` (paper) or ``"max_abs"`` (released code).
        server_lr: eta_g > 0, the factor of the mean update; one in the paper.
    """

    neutral: ClassVar[Mapping[str, Any] | None] = {"step_size": 0.0}

    def __init__(self, step_size: float = 0.05, normalizer: str = "max", server_lr: float = 1.0) -> None:
        self.step_size = step_size
        self.normalizer = normalizer
        super().__init__(server_lr=server_lr)

    def _validate(self) -> None:
        self.weighting = {"name": "ga", "step_size": self.step_size, "normalizer": self.normalizer}
        super()._validate()
