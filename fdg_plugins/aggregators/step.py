# SPDX-License-Identifier: Apache-2.0
"""The step of a round and its measurements, which do not depend on the aggregator's own report."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.core.measures import measure_step
from fdg_plugins.core.weighting import uniform_weights
from fdg_plugins.errors import FDGError
from fdg_plugins.messages import META_REPORT
from fdg_plugins.values import shorten


def take_step(aggregator: UpdateAggregator) -> FLModel:
    """Return the step of the round; its report includes the measurements of ``core.measures.measure_step``.

    The measurements are computed here, because an aggregator may override any method: from the updates as accepted (and
    shortened, if the run asks for it) and from the step itself. The mean uses the weights that the aggregator reports,
    or uniform weights if it reports none.

    Raises ``FDGError`` for a step that lacks a parameter or has one of the wrong shape.
    """
    clipping = aggregator.clip()
    contributions = list(aggregator.accepted().values())
    updates = [aggregator.trainable(contribution) for contribution in contributions]
    result = aggregator.aggregate_model()
    if not contributions:
        return result
    step = _trainable_step(aggregator, updates[0], result.params)
    sites = [contribution.site for contribution in contributions]
    report: dict[str, Any] = {"sites": sites, "weights": {}, "coefficients": {}, **(result.meta.get(META_REPORT) or {})}
    weights = _weights(contributions, report)
    measured = measure_step(updates, step, weights, aggregator.server_lr, aggregator.known_gram(contributions))
    result.meta = {**result.meta, META_REPORT: {**report, **clipping, **measured}}
    return result


def _weights(contributions: Sequence[Contribution], report: Mapping[str, Any]) -> torch.Tensor:
    """Return the weights of the mean, float64 ``[U]``."""
    if len(report["weights"]) == len(contributions):
        return torch.tensor(report["weights"], dtype=torch.float64)
    return uniform_weights(len(contributions))


def _trainable_step(aggregator: UpdateAggregator, like: Mapping[str, Any], params: Any) -> dict[str, torch.Tensor]:
    """Return the trainable part of a step, checked against the names and shapes of an update."""
    step = {}
    for name, value in like.items():
        if name not in params:
            raise FDGError(f"the step of {type(aggregator).__name__} lacks parameter {name!r}, expected all of them.")
        step[name] = torch.as_tensor(params[name])
        if step[name].shape != value.shape:
            raise FDGError(
                f"the step of {type(aggregator).__name__} has parameter {name!r} of shape "
                f"{shorten(list(step[name].shape))}, expected {list(value.shape)}."
            )
    return step
