# SPDX-License-Identifier: Apache-2.0
"""Contributions that say how the site trained, as this package's executor sends them."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.aggregators import UpdateAggregator, take_step
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.messages import META_REPORT, META_SAMPLES, META_SITE

SAMPLES = {"art": 100, "cartoon": 300, "photo": 600}
UPDATES = {
    "art": {"w": torch.tensor([1.0, 0.0]), "bn.running_mean": torch.tensor([4.0])},
    "cartoon": {"w": torch.tensor([0.0, 1.0]), "bn.running_mean": torch.tensor([-2.0])},
    "photo": {"w": torch.tensor([1.0, 1.0]), "bn.running_mean": torch.tensor([0.5])},
}
"""Updates of two parameters' values and a buffer, which no test changes."""
LAYOUT = ModelLayout.of(UPDATES["art"])


def vector(*values: float) -> dict[str, Any]:
    return {"w": np.asarray(values, np.float64)}


def contribution(
    site: str,
    params: Any,
    samples: int | None = 10,
    said: bool = True,
    *,
    losses: tuple[Any, Any] | None = None,
    **report: Any,
) -> FLModel:
    """A contribution of ``params`` with a report of its training, without one if ``said`` is false.

    ``losses``: on its training split, of the model received and of its own.
    """
    meta: dict[str, Any] = {META_SITE: site, **({} if samples is None else {META_SAMPLES: samples})}
    scores = [{"split": "train", "accuracy": 0.5, "count": 10, "loss": loss} for loss in losses or ()]
    told = {"domain": "photo", "steps": 1, "effective_steps": 1.0, "learning_rate": 0.1, "seconds": 0.5}
    if said:
        meta[META_REPORT] = {**told, "training_split": tuple(scores) or None, **report}
    return FLModel(params_type=ParamsType.DIFF, params=params, meta=meta)


def aggregate(aggregator: UpdateAggregator, contributions: Iterable[FLModel]) -> FLModel:
    """Return the step of a round, measured."""
    for model in contributions:
        aggregator.accept_model(model)
    return take_step(aggregator)


def report_of(result: FLModel) -> dict[str, Any]:
    report: dict[str, Any] = result.meta[META_REPORT]
    return report


def weights_of(result: FLModel) -> dict[str, float]:
    return dict(zip(report_of(result)["sites"], report_of(result)["weights"], strict=True))
