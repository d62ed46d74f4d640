# SPDX-License-Identifier: Apache-2.0
"""One site's contribution, in memory or in FLARE's files: read as it was sent, or refused by site and parameter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fdg_plugins.aggregators.contributions import read_contribution
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.core.stored import Stored
from fdg_plugins.errors import ContributionError
from fdg_plugins.testing.inputs import random_update
from tests.aggregators.trained_sites import contribution

Params = dict[str, Any]


def loaded(value: torch.Tensor | Stored) -> torch.Tensor:
    """Return what must be a tensor in memory."""
    assert isinstance(value, torch.Tensor)
    return value


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
        update = loaded(read_contribution(contribution("photo", {"w": value}), layout).update["w"])
        assert update.dtype == torch.float32
        assert update.is_contiguous()
        assert not update.requires_grad
        assert update.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


@pytest.mark.parametrize("content", [b"", b"12345678", b"\x02\0\0\0\0\0\0\0{}"])
def test_a_file_that_is_not_sound_is_refused_by_site_and_parameter(
    offload: Callable[..., Params], content: bytes
) -> None:
    sent = random_update(1)
    update = offload(sent)
    Path(update["conv.weight"].file_path).write_bytes(content)
    with pytest.raises(ContributionError) as caught:
        read_contribution(contribution("photo", update), ModelLayout.of(sent), in_files=True)
    assert str(caught.value).startswith("site photo: parameter 'conv.weight' cannot be loaded: ")
