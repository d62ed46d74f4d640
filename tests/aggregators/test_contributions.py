# SPDX-License-Identifier: Apache-2.0
"""One site's contribution: read as it was sent, or refused in one sentence that names site and parameter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.aggregators.contributions import read_contribution
from fdg_plugins.core.layout import ModelLayout, ParameterKind
from fdg_plugins.core.stored import Stored
from fdg_plugins.messages import META_SAMPLES, META_SITE

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


# --- what is refused ---
