# SPDX-License-Identifier: Apache-2.0
"""The step of a round as an aggregator made it, and what is measured of it, whoever wrote the aggregator."""

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
    """Return the step of the round, in its report also what is measured of it (:func:`core.measures.measure_step`).

    Measured are the updates as they were accepted, shortened where the run asks for it, and the step as it was made:
    no figure is the word of the aggregator, which may override anything. The mean is that by the weights it reports,
    the plain one if it reports none. Raises ``FDGError`` for a step that lacks a parameter or has one of another shape.
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
    """Return the weights of the mean ``[U]``, float64."""
    if len(report["weights"]) == len(contributions):
        return torch.tensor(report["weights"], dtype=torch.float64)
    return uniform_weights(len(contributions))


def _trainable_step(aggregator: UpdateAggregator, like: Mapping[str, Any], params: Any) -> dict[str, torch.Tensor]:
    """Return the trainable part of a step, whose names and shapes are those of an update."""
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
