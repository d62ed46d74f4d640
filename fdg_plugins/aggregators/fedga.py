# SPDX-License-Identifier: Apache-2.0
"""FedDG-GA: FedAvg with weights that follow the sites' generalization gaps.

For federations in which averaging serves some domains worse than others.

Reference: Zhang, Xu, Yao, Zhang, Tian, Wang, "Federated Domain Generalization with Generalization Adjustment"
(FedDG-GA), CVPR 2023.

Equations: ``gap_u = loss_u(global, round r) - loss_u(local, round r - 1)``; Eq. 3,
``a'_u = a_u + (1 - r/R) d (gap_u - mean) / max_v (gap_v - mean)``, clipped at zero and rescaled to sum one
-> :func:`fdg_plugins.core.adjustment.adjust_weights`; then FedAvg with a.

Shapes: gaps ``[U]`` of the round's sites, weights a ``[N]`` of all known sites, of which a round uses ``[U]`` with
updates ``[U, P]``.

Participation: every known site has a weight, and a round uses its sites' weights rescaled to one. A new site starts at
the mean; an absent site keeps its weight. In round 0 there is no previous local model, hence no gap.

Buffers: as under FedAvg, with the adjusted weights.

Differences: see :mod:`fdg_plugins.core.adjustment`. The gaps are measured by
:class:`~fdg_plugins.filters.GapReportFilter` at the sites and checked by
:class:`~fdg_plugins.filters.GapCheckFilter` at the server.
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
