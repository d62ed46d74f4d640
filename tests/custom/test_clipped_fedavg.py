# SPDX-License-Identifier: Apache-2.0
"""The example of a method of one's own does what it says."""

import sys
from pathlib import Path

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.messages import META_SITE

CUSTOM = Path(__file__).parents[2] / "custom"


def test_no_update_counts_for_more_than_the_median_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CUSTOM))
    from clipped_fedavg import ClippedFedAvgAggregator

    aggregator = ClippedFedAvgAggregator(weighting="uniform")
    for site, value in (("a", [1.0, 0.0]), ("b", [0.0, 2.0]), ("c", [300.0, 0.0])):
        params = {"w": torch.tensor(value)}
        aggregator.accept_model(FLModel(params_type=ParamsType.DIFF, params=params, meta={META_SITE: site}))
    # Lengths 1, 2, 300; the median is 2, so the last is shortened to [2, 0].
    assert torch.allclose(aggregator.aggregate_model().params["w"], torch.tensor([1.0, 2 / 3]))
    sys.modules.pop("clipped_fedavg")
