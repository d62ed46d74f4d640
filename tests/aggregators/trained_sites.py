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


def training_report(effective_steps: Any = 1.0, steps: int = 1, losses: tuple[Any, Any] | None = None) -> Any:
    """What a site says of its training; ``losses`` on its training split, of the model received and of its own."""
    split = {"split": "train", "accuracy": 0.5, "count": 10}
    report = {
        "domain": "photo",
        "steps": steps,
        "effective_steps": effective_steps,
        "learning_rate": 0.1,
        "seconds": 0.5,
        "training_split": None if losses is None else tuple({**split, "loss": loss} for loss in losses),
    }
    return {META_REPORT: report}


def contribution(site: str, params: Any, samples: int | None = 10, said: bool = True, **report: Any) -> FLModel:
    """A contribution of ``params`` with a report of its training, without one if ``said`` is false."""
    meta = {META_SITE: site, **({} if samples is None else {META_SAMPLES: samples})}
    told = training_report(**report) if said else {}
    return FLModel(params_type=ParamsType.DIFF, params=params, meta={**meta, **told})


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
