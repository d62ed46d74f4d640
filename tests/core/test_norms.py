# SPDX-License-Identifier: Apache-2.0
"""The squared length of many tensors: to seven digits at every scale, the same for any number of threads."""

import pytest
import torch

from fdg_plugins.core.linear import BLOCK
from fdg_plugins.core.norms import squared_norm
from tests.random_tensors import normal


def test_it_is_the_sum_of_all_squares_of_all_tensors_whatever_their_sizes() -> None:
    for size in [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7]:
        tensors = [normal(1, size), normal(2, 3, 2), torch.tensor(2.0)]
        expected = sum(float((tensor.double() ** 2).sum()) for tensor in tensors)
        result = squared_norm(tensors)
        assert (result.shape, result.dtype) == ((), torch.float64)
        assert result.item() == pytest.approx(expected, rel=1e-6)
        assert squared_norm([tensor.double() for tensor in tensors]).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_scales_at_which_float32_has_no_squares_are_legal(scale: float) -> None:
    assert squared_norm([torch.tensor([3.0, 4.0]) * scale]).sqrt().item() == pytest.approx(5 * scale, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.usefixtures("threads")
def test_the_number_of_threads_changes_no_bit(dtype: torch.dtype) -> None:
    tensors = [normal(1, 40 * BLOCK + 5), normal(2, 2 * BLOCK), normal(3, 300, 129), normal(4, 7)]
    tensors = [tensor.to(dtype) for tensor in tensors]
    results = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        results.append(squared_norm(tensors))
    assert all(torch.equal(result, results[0]) for result in results)
