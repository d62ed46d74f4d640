# SPDX-License-Identifier: Apache-2.0
"""FedAvg: the weighted mean of the updates, by hand."""

from typing import Any

import numpy as np
import pytest
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.aggregators import take_step
from fdg_plugins.messages import META_REPORT, META_SAMPLES, META_SITE
from fdg_plugins.methods.fedavg import FedAvgAggregator


def contribution(site: str, update: Any, samples: int = 1) -> FLModel:
    params = {"w": np.asarray(update, np.float64)}
    return FLModel(params_type=ParamsType.DIFF, params=params, meta={META_SITE: site, META_SAMPLES: samples})


def step(aggregator: FedAvgAggregator, *contributions: FLModel) -> FLModel:
    for model in contributions:
        aggregator.accept_model(model)
    return take_step(aggregator)


def test_two_sites_by_hand() -> None:
    # p = (3, 4) / 7, so the mean of (7, 0) and (0, 7) is (3, 4), of length 5; its cosines with them are 3/5 and 4/5.
    result = step(FedAvgAggregator(), contribution("art", [7.0, 0.0], 3), contribution("photo", [0.0, 7.0], 4))
    np.testing.assert_allclose(result.params["w"], [3.0, 4.0], rtol=1e-12)
    report = result.meta[META_REPORT]
    assert report["sites"] == ["art", "photo"]
    assert report["weights"] == report["coefficients"] == pytest.approx([3 / 7, 4 / 7])
    assert report["update_norms"] == pytest.approx([7.0, 7.0])
    assert report["mean_norm"] == report["direction_norm"] == pytest.approx(5.0)
    assert report["cosines_with_mean"] == report["cosines_with_direction"] == pytest.approx([0.6, 0.8])


def test_uniform_weights_and_the_servers_step_by_hand() -> None:
    aggregator = FedAvgAggregator(weighting="uniform", server_lr=0.5)
    result = step(aggregator, contribution("art", [2.0, -4.0], 1), contribution("photo", [4.0, 0.0], 99))
    assert result.params["w"].tolist() == [1.5, -1.0]
