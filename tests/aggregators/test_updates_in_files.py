# SPDX-License-Identifier: Apache-2.0
"""Updates that FLARE wrote to files: the same bits and the same refusals as in memory, and no file left of a round."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators import AGGREGATORS, RunFacts, UpdateAggregator, make_aggregator
from fdg_plugins.aggregators.contributions import read_contribution
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.errors import ContributionError
from fdg_plugins.messages import META_CHECKED_REPORTS, META_REPORT, REPORT_GAP
from tests.aggregators.trained_sites import contribution

Params = dict[str, Any]
Offload = Callable[[Mapping[str, Any]], Params]

REPEATABLE = settings(
    derandomize=True, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SITES = {"art": 10, "photo": 30, "sketch": 60, "cartoon": 5}
SHAPES = {"conv.weight": (40, 3, 3), "classifier.weight": (3, 50), "classifier.bias": (3,), "empty": (0, 2)}
COUNTER = "bn.num_batches_tracked"
FACTS = RunFacts({site: (count, 0, 1) for site, count in SITES.items()}, ("classifier.weight", "classifier.bias"))


def update_of(seed: int, dtype: torch.dtype = torch.float32) -> Params:
    generator = torch.Generator().manual_seed(seed)
    update = {name: torch.randn(*shape, generator=generator).to(dtype) for name, shape in SHAPES.items()}
    update["bn.running_mean"] = torch.randn(7, generator=generator).to(dtype)
    return {**update, COUNTER: torch.tensor(seed % 100)}


LAYOUT = ModelLayout.of(update_of(0))


def sent(site: str, params: Params) -> FLModel:
    model = contribution(site, params, SITES[site])
    model.meta[META_CHECKED_REPORTS] = {REPORT_GAP: len(site) / 10}
    return model


def step(aggregator: UpdateAggregator, updates: Sequence[Params]) -> FLModel:
    aggregator.begin_run(FACTS)
    aggregator.begin_round(LAYOUT, SITES, round_number=1, total_rounds=5)
    for site, params in zip(SITES, updates, strict=False):
        aggregator.accept_model(sent(site, params))
    return aggregator.aggregate_model()


# --- the step ---


@REPEATABLE
@given(
    seeds=st.lists(st.integers(0, 2**31), min_size=1, max_size=4),
    in_files=st.lists(st.booleans(), min_size=4, max_size=4),
    dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]),
)
def test_a_step_has_the_same_bits_wherever_the_updates_are(
    offload: Offload, seeds: list[int], in_files: list[bool], dtype: torch.dtype
) -> None:
    for name in AGGREGATORS:
        updates = [update_of(seed, dtype) for seed in seeds]
        expected = step(make_aggregator(name), updates)
        kept = [offload(update) if moved else update for update, moved in zip(updates, in_files, strict=False)]
        found = step(make_aggregator(name), kept)
        assert found.meta[META_REPORT] == expected.meta[META_REPORT]
        assert found.params.keys() == expected.params.keys()
        for parameter, value in expected.params.items():
            assert found.params[parameter].dtype == value.dtype
            assert torch.equal(found.params[parameter], value), parameter


# --- what is refused ---


@pytest.mark.parametrize("content", [b"", b"12345678", b"\x02\0\0\0\0\0\0\0{}"])
def test_a_file_that_is_not_sound_is_refused_by_site_and_parameter(
    offload: Offload, offload_root: Path, content: bytes
) -> None:
    update = offload(update_of(1))
    Path(update["conv.weight"].file_path).write_bytes(content)
    with pytest.raises(ContributionError, match=r"^site photo: parameter 'conv\.weight' cannot be loaded: .*\.$"):
        read_contribution(sent("photo", update), LAYOUT, in_files=True)


# --- how much is in memory ---
