# SPDX-License-Identifier: Apache-2.0
"""FedAvg: the weighted mean of the updates, by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.aggregators import FedAvgAggregator, take_step
from fdg_plugins.messages import META_REPORT, META_SAMPLES, META_SITE

REPEATABLE = settings(derandomize=True, deadline=None)


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


def test_weights_belong_to_sites_and_not_to_their_order_of_arrival() -> None:
    result = step(FedAvgAggregator(), contribution("z", [4.0], 3), contribution("a", [0.0], 1))
    assert result.params["w"].tolist() == [3.0]
    assert result.meta[META_REPORT]["weights"] == [0.25, 0.75]


def test_the_default_is_the_papers_fedavg() -> None:
    assert FedAvgAggregator().settings() == {"weighting": "samples", "server_lr": 1.0}


@REPEATABLE
@given(counts=st.lists(st.integers(1, 1000), min_size=1, max_size=5), value=st.floats(-1e10, 1e10))
def test_equal_updates_are_their_own_mean(counts: list[int], value: float) -> None:
    models = [contribution(f"site-{index}", [value], count) for index, count in enumerate(counts)]
    assert step(FedAvgAggregator(), *models).params["w"][0] == pytest.approx(value, rel=1e-12)


def test_a_single_site_gives_its_own_update_back(make_update: Callable[..., dict[str, Any]]) -> None:
    update = make_update(3)
    meta = {META_SITE: "photo", META_SAMPLES: 12}
    result = step(FedAvgAggregator(), FLModel(params_type=ParamsType.DIFF, params=update, meta=meta))
    assert all(np.array_equal(result.params[name], update[name]) for name in update)


def test_opposite_updates_cancel() -> None:
    result = step(FedAvgAggregator(), contribution("art", [1.0, -2.0], 5), contribution("photo", [-1.0, 2.0], 5))
    assert result.params["w"].tolist() == [0.0, 0.0]
    assert result.meta[META_REPORT]["cosines_with_mean"] == [0.0, 0.0]
