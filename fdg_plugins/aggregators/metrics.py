# SPDX-License-Identifier: Apache-2.0
"""The metrics of a round: each site's ``FLModel.metrics``, averaged as FLARE's own FedAvg averages them.

FLARE's model selection, early stopping and metric files read the metrics of the aggregated model.

Equation: ``sum_u n_u m_u / sum_u n_u`` for each metric m, over the sites of the round that sent it, with the number of
samples n, one if a site did not say it -> :func:`mean_metrics`.

Participation: as in FLARE, a round has no metrics at all if one of its sites sent none.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper

from fdg_plugins.messages import LONGEST_NAME, MOST_NAMES

if TYPE_CHECKING:
    from fdg_plugins.aggregators.contributions import Contribution


def read_metrics(value: Any) -> dict[str, float] | None:
    """Return the finite numbers among a site's metrics, by name, truth values as 0 and 1; None if it sent none.

    Anything else is left out, because a metric must not cost a site its update.
    """
    if not isinstance(value, Mapping):
        return None
    numbers = ((name, _number(one)) for name, one in value.items() if _is_name(name))
    return dict(islice(((name, number) for name, number in numbers if number is not None), MOST_NAMES))


def mean_metrics(contributions: Sequence["Contribution"]) -> dict[str, float] | None:
    """Return the weighted mean of each metric over the sites that sent it; None if there is none."""
    helper = WeightedAggregationHelper()
    for contribution in contributions:
        if contribution.metrics is None:
            return None
        helper.add(contribution.metrics, contribution.num_samples or 1, contribution.site, None)
    return helper.get_result() or None


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= LONGEST_NAME


def _number(value: Any) -> float | None:
    try:
        number = float(value) if not isinstance(value, str | bytes) else math.nan
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    return number if math.isfinite(number) else None
