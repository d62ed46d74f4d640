# SPDX-License-Identifier: Apache-2.0
"""One site's contribution: read as it was sent, or refused in one sentence that names site and parameter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from safetensors import SafetensorError

from fdg_plugins.aggregators.contributions import read_contribution
from fdg_plugins.core.layout import ModelLayout, ParameterKind
from fdg_plugins.core.stored import Stored
from fdg_plugins.errors import ContributionError
from fdg_plugins.messages import META_SAMPLES, META_SITE
from tests.aggregators.conftest import BROKEN

Params = dict[str, Any]


def model_of(params: Params, site: Any = "photo", samples: Any = 10, **meta: Any) -> FLModel:
    with_samples = {} if samples is None else {META_SAMPLES: samples}
    return FLModel(params_type=ParamsType.DIFF, params=params, meta={META_SITE: site, **with_samples, **meta})


def loaded(value: torch.Tensor | Stored) -> torch.Tensor:
    """Return what must be a tensor in memory."""
    assert isinstance(value, torch.Tensor)
    return value


def single(value: Any) -> FLModel:
    return model_of({"w": value})


# --- what is read ---


@pytest.mark.parametrize("tensors", [False, True])
def test_a_contribution_holds_what_was_sent(
    make_update: Callable[..., Params], layout: ModelLayout, tensors: bool
) -> None:
    sent = make_update(1, tensors)
    contribution = read_contribution(model_of(sent), layout)
    assert (contribution.site, contribution.num_samples, contribution.arrays) == ("photo", 10, not tensors)
    assert list(contribution.update) == list(layout)
    for name, value in contribution.update.items():
        assert (tuple(value.shape), value.dtype) == (layout[name].shape, layout[name].dtype)
        np.testing.assert_array_equal(loaded(value).numpy(), np.asarray(sent[name]))


def test_the_length_of_a_contribution_is_that_of_its_trainable_parameters(
    make_update: Callable[..., Params], layout: ModelLayout
) -> None:
    sent = make_update(1, True)
    trainable = torch.cat([sent[name].reshape(-1).double() for name in layout.names(ParameterKind.TRAINABLE)])
    assert read_contribution(model_of(sent), layout).length == pytest.approx(float(trainable.norm()), rel=1e-6)


def test_a_contribution_does_not_change_with_the_array_it_was_read_from(layout: ModelLayout) -> None:
    array = np.ones(3, np.float32)
    contribution = read_contribution(single(array), None)
    array[:] = 9.0
    assert loaded(contribution.update["w"]).tolist() == [1.0, 1.0, 1.0]


def test_numbers_are_read_in_the_models_dtype_however_they_are_laid_out() -> None:
    cases: list[Any] = [
        np.arange(6, dtype=np.float64).reshape(2, 3),
        np.arange(6, dtype=np.float16).reshape(2, 3),
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2] / 2,
        np.arange(6, dtype=np.float32)[::-1].reshape(2, 3)[::-1, ::-1],
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        torch.arange(6.0, dtype=torch.bfloat16).view(2, 3),
        torch.arange(6.0).view(3, 2).t().contiguous().t().reshape(2, 3),
        torch.arange(6.0).view(2, 3).t().contiguous().t(),
        torch.nn.Parameter(torch.arange(6.0).view(2, 3)),
    ]
    for value in cases:
        layout = ModelLayout.of({"w": torch.zeros(2, 3)})
        update = loaded(read_contribution(single(value), layout).update["w"])
        assert update.dtype == torch.float32
        assert update.is_contiguous()
        assert not update.requires_grad
        assert update.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_integers_of_any_width_are_read_in_the_buffers_dtype() -> None:
    cases: list[Any] = [np.int8, np.uint8, np.int32, np.uint16, np.int64]
    for dtype in cases:
        layout = ModelLayout.of({"w": np.array(0, np.int64)})
        update = loaded(read_contribution(single(np.array(12, dtype)), layout).update["w"])
        assert (update.dtype, update.item()) == (torch.int64, 12)


def test_whole_numbers_of_samples_are_read_as_integers() -> None:
    cases: list[Any] = [1, 10, 10.0, np.int64(10), np.float32(10.0), 2**53]
    for samples in cases:
        number = read_contribution(model_of({"w": np.ones(1)}, samples=samples), None).num_samples
        assert number == int(samples)
        assert type(number) is int


# --- what is refused ---


def test_every_broken_contribution_is_refused_with_site_and_reason(
    make_update: Callable[..., Params], make_message: Callable[..., Shareable], layout: ModelLayout
) -> None:
    for broken in BROKEN.values():
        message = make_message(broken.spoil(make_update(1)), kind=broken.kind, **broken.options)
        model = FLModelUtils.from_shareable(message)
        model.meta[META_SITE] = "sketch"
        with pytest.raises(ContributionError, match=f"^site sketch: .*{broken.says}"):
            read_contribution(model, layout)


def test_a_reference_that_cannot_be_loaded_is_refused(make_reference: Callable[[Any], Any]) -> None:
    cases: list[type[Exception]] = [OSError, KeyError, ValueError, RuntimeError, SafetensorError]
    for error in cases:
        with pytest.raises(ContributionError, match=r"site photo: parameter 'w' cannot be loaded: .*gone"):
            read_contribution(single(make_reference(error("gone"))), None)


def test_without_a_layout_an_update_is_checked_against_itself() -> None:
    with pytest.raises(ContributionError, match="'w' has 1 values that are NaN"):
        read_contribution(single(np.array([1.0, np.nan])), None)
    assert set(read_contribution(model_of({"any": np.ones(2), "name": np.ones(1)}), None).update) == {"any", "name"}


@pytest.mark.parametrize("value", [1e141, -1e200])
def test_values_whose_square_overflows_float64_are_refused(value: float) -> None:
    with pytest.raises(ContributionError, match=r"site photo: parameter 'w' has values beyond 1e\+140"):
        read_contribution(single(np.array([1.0, value])), None)
    assert loaded(read_contribution(single(np.array([1.0, 1e139])), None).update["w"]).tolist() == [1.0, 1e139]


def test_a_contribution_without_the_name_of_a_site_is_refused() -> None:
    cases: list[Any] = [None, "", 3, b"photo", ["photo"]]
    for site in cases:
        with pytest.raises(ContributionError, match="without the name of an authenticated site"):
            read_contribution(model_of({"w": np.ones(1)}, site=site), None)


def test_a_hostile_name_does_not_flood_the_message(layout: ModelLayout, make_update: Callable[..., Params]) -> None:
    with pytest.raises(ContributionError) as caught:
        read_contribution(model_of({**make_update(1), "x" * 10_000: np.ones(1)}), layout)
    assert len(str(caught.value)) < 200
