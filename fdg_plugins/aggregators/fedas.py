# SPDX-License-Identifier: Apache-2.0
"""FedAS's weights: by the trace of the Fisher information of the sites' trained models.

Reference: Yang, Huang, Ye, "FedAS: Bridging Inconsistency in Personalized Federated Learning", CVPR 2024.

Equation: ``T_u / sum_v T_v`` over the sites of the round -> :func:`~fdg_plugins.core.fisher.fisher_weights`. The trace
is a report of the objective of the same method (:mod:`fdg_plugins.objectives.fedas`), checked by its exchange.

Shapes: traces T, samples and weights ``[U]``, for updates ``[U, P]`` of the sites of the round.

Participation: the sites of the round only; no state. A contribution without a checked trace is refused. Buffers: as
under FedAvg, with these weights.
"""

import math
from collections.abc import Sequence

import torch

from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.weighting_rule import ONLY_ROUND, RoundOf, Weighting
from fdg_plugins.core.fisher import fisher_weights
from fdg_plugins.errors import ContributionError
from fdg_plugins.objectives.fedas import REPORT_FISHER_TRACE


class FisherWeighting(Weighting):
    """Weights in proportion to the trace of the Fisher information of the sites' models. Works with any direction."""

    shares = REPORT_FISHER_TRACE
    needs_reports = True
    example_reports = (0.5, 2.0, 0.0)

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Return the weights of the round's sites, float64 ``[U]``; raise ``ContributionError`` as :meth:`check`."""
        for contribution in contributions:
            self.check(contribution)
        samples = [contribution.num_samples or 0 for contribution in contributions]
        return fisher_weights([trace_of(contribution) for contribution in contributions], samples)

    def check(self, contribution: Contribution) -> None:
        """Refuse a contribution without a number of samples or a checked trace."""
        trace_of(contribution)
        if contribution.num_samples is None:
            raise ContributionError(
                f"site {contribution.site}: did not say its number of samples, which gives its weight if all Fisher "
                "traces are zero."
            )


def trace_of(contribution: Contribution) -> float:
    """Return the checked trace of a contribution; raise ``ContributionError``, naming the site, if there is none."""
    trace = contribution.reports.get(REPORT_FISHER_TRACE)
    if not isinstance(trace, float) or not 0 <= trace < math.inf:
        raise ContributionError(
            f"site {contribution.site}: there is no usable Fisher trace of its model, from which its weight follows."
        )
    return trace
