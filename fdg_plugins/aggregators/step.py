# SPDX-License-Identifier: Apache-2.0
"""The step of a round and its measurements, which do not depend on the aggregator's own report."""

from typing import Any

import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.core.measures import measure_step
from fdg_plugins.core.weighting import uniform_weights
from fdg_plugins.messages import META_REPORT


def take_step(aggregator: UpdateAggregator) -> FLModel:
    """Return the step of the round; its report includes the measurements of ``core.measures.measure_step``.

    The measurements are computed here, because an aggregator may override any method: from the updates as accepted (and
    shortened, if the run asks for it) and from the step itself. The mean uses the weights that the aggregator reports,
    or uniform weights if it reports none.
    """
    clipping = aggregator.clip()
    contributions = list(aggregator.accepted().values())
    updates = [aggregator.trainable(contribution) for contribution in contributions]
    result = aggregator.aggregate_model()
    if not contributions:
        return result
    step = {name: torch.as_tensor(result.params[name]) for name in updates[0]}
    sites = [contribution.site for contribution in contributions]
    report: dict[str, Any] = {"sites": sites, "weights": {}, "coefficients": {}, **(result.meta.get(META_REPORT) or {})}
    told = report["weights"]
    weights = torch.tensor(told, dtype=torch.float64) if len(told) == len(sites) else uniform_weights(len(sites))
    measured = measure_step(updates, step, weights, aggregator.server_lr, aggregator.known_gram(contributions))
    result.meta = {**result.meta, META_REPORT: {**report, **clipping, **measured}}
    return result
