# SPDX-License-Identifier: Apache-2.0
"""Updates that FLARE wrote to files: the same bits and the same refusals as in memory, and no file left of a round."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fdg_plugins.aggregators import AGGREGATORS, RunFacts, UpdateAggregator, make_aggregator
from fdg_plugins.aggregators import contributions as reading
from fdg_plugins.aggregators.contributions import read_contribution
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.errors import ContributionError
from fdg_plugins.flare.stored_tensor import StoredTensor
from fdg_plugins.messages import META_CHECKED_REPORTS, META_REPORT, META_SITE, REPORT_GAP
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


def test_no_file_is_left_once_the_step_was_made_or_the_round_was_given_up(offload: Offload, offload_root: Path) -> None:
    for name in AGGREGATORS:
        aggregator = make_aggregator(name)
        step(aggregator, [offload(update_of(seed)) for seed in range(3)])
        assert list(offload_root.iterdir()) == []
        aggregator.begin_round(LAYOUT, SITES)
        aggregator.accept_model(sent("photo", offload(update_of(1))))
        assert len(list(offload_root.iterdir())) == 1
        aggregator.reset_stats()
        assert list(offload_root.iterdir()) == []


# --- what is refused ---


def test_every_broken_contribution_is_refused_from_files_as_from_memory(
    broken: Any,
    make_update: Callable[..., Params],
    make_message: Callable[..., Any],
    layout: ModelLayout,
    offload: Offload,
) -> None:
    params = broken.spoil(make_update(1))
    tensors = {name: torch.from_numpy(value) for name, value in params.items() if is_array(value)}
    kept = offload({**tensors, **{name: value for name, value in params.items() if is_dense(value)}})
    model = FLModelUtils.from_shareable(make_message({**params, **kept}, kind=broken.kind, **broken.options))
    model.meta[META_SITE] = "sketch"
    with pytest.raises(ContributionError, match=f"^site sketch: .*{broken.says}"):
        read_contribution(model, layout, in_files=True)


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.dtype.itemsize <= 8


def is_dense(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type != "meta"


def test_the_files_of_a_refused_update_go_with_its_message(offload: Offload, offload_root: Path) -> None:
    aggregator = make_aggregator("fedavg")
    aggregator.begin_round(LAYOUT, SITES)
    update = update_of(1)
    update["conv.weight"][0] = float("nan")
    with pytest.raises(ContributionError, match="values that are NaN"):
        aggregator.accept_model(sent("photo", offload(update)))
    assert list(offload_root.iterdir()) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("position", [0, 9, 10, 359])
def test_one_value_that_is_not_finite_is_found_in_whichever_part_it_lies(
    offload: Offload, monkeypatch: pytest.MonkeyPatch, value: float, position: int
) -> None:
    monkeypatch.setattr(reading, "CHECKED_AT_A_TIME", 10)
    update = update_of(1)
    update["conv.weight"].view(-1)[position] = value
    with pytest.raises(ContributionError, match=r"site photo: parameter 'conv\.weight' has 1 values that are NaN or"):
        read_contribution(sent("photo", offload(update)), LAYOUT, in_files=True)


def test_values_beyond_the_models_type_and_beyond_what_can_be_squared_are_refused(offload: Offload) -> None:
    update = {**update_of(1), "conv.weight": torch.full((40, 3, 3), 1e300, dtype=torch.float64)}
    with pytest.raises(ContributionError, match=r"'conv\.weight' has 360 values that are NaN or infinite"):
        read_contribution(sent("photo", offload(update)), LAYOUT, in_files=True)
    with pytest.raises(ContributionError, match=r"'conv.weight' has values beyond 1e\+140"):
        read_contribution(sent("photo", offload(update)), None, in_files=True)


@pytest.mark.parametrize("content", [b"", b"12345678", b"\x02\0\0\0\0\0\0\0{}"])
def test_a_file_that_is_not_sound_is_refused_by_site_and_parameter(
    offload: Offload, offload_root: Path, content: bytes
) -> None:
    update = offload(update_of(1))
    Path(update["conv.weight"].file_path).write_bytes(content)
    with pytest.raises(ContributionError, match=r"^site photo: parameter 'conv\.weight' cannot be loaded: .*\.$"):
        read_contribution(sent("photo", update), LAYOUT, in_files=True)


# --- how much is in memory ---


def test_an_update_is_checked_and_combined_a_part_at_a_time(offload: Offload, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    read = StoredTensor.read

    def noted(self: StoredTensor, start: int, stop: int) -> torch.Tensor:
        lengths.append(stop - start)
        return read(self, start, stop)

    monkeypatch.setattr(StoredTensor, "read", noted)
    monkeypatch.setattr(reading, "CHECKED_AT_A_TIME", 100)
    accepted = read_contribution(sent("photo", offload(update_of(1))), LAYOUT, in_files=True)
    assert all(isinstance(value, StoredTensor) for value in accepted.update.values())
    assert max(lengths) == 100
    assert not accepted.arrays
