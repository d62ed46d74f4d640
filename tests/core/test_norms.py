# SPDX-License-Identifier: Apache-2.0
"""The squared length of many tensors: to seven digits at every scale, the same for any number of threads."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fdg_plugins.core.linear import BLOCK
from fdg_plugins.core.norms import squared_norm
from tests.random_tensors import normal


class LargestFloat64(TorchDispatchMode):
    """Notes the number of elements of the largest float64 tensor that an operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.dtype == torch.float64:
            self.elements = max(self.elements, result.numel())
        return result


@pytest.mark.parametrize("size", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_it_is_the_sum_of_all_squares_of_all_tensors_whatever_their_sizes(size: int) -> None:
    tensors = [normal(1, size), normal(2, 3, 2), torch.tensor(2.0)]
    expected = sum(float((tensor.double() ** 2).sum()) for tensor in tensors)
    result = squared_norm(tensors)
    assert (result.shape, result.dtype) == ((), torch.float64)
    assert result.item() == pytest.approx(expected, rel=1e-6)
    assert squared_norm([tensor.double() for tensor in tensors]).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("value", [1 / 3, 0.1, 0.7, 3.3])
def test_rounding_errors_of_one_sign_do_not_add_up(value: float) -> None:
    """Added in float32, the squares of a constant are rounded in one direction."""
    tensor = torch.full((40 * BLOCK + 77,), value)
    assert squared_norm([tensor]).item() == pytest.approx(float((tensor.double() ** 2).sum()), rel=1e-6)


def test_on_a_cpu_no_element_is_converted_to_float64() -> None:
    """That takes many times longer than the sum of the squares."""
    size = 100 * BLOCK
    tensor = normal(1, size)
    with LargestFloat64() as found:
        squared_norm([tensor])
    assert 0 < found.elements <= size // 50


def test_more_blocks_than_fit_into_one_are_summed_in_turn() -> None:
    blocks = BLOCK + 3
    assert squared_norm([torch.ones(1)] * blocks).item() == blocks


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_scales_at_which_float32_has_no_squares_are_legal(scale: float) -> None:
    assert squared_norm([torch.tensor([3.0, 4.0]) * scale]).sqrt().item() == pytest.approx(5 * scale, rel=1e-6)


def test_where_float32_loses_most_squares_the_sum_is_still_that_of_all() -> None:
    tensor = torch.cat([torch.full((BLOCK,), 1e-22), torch.tensor([1e-19])])
    assert squared_norm([tensor]).item() == pytest.approx(float((tensor.double() ** 2).sum()), rel=1e-6)


def test_it_has_no_graph() -> None:
    assert not squared_norm([normal(1, 5, 3).requires_grad_()]).requires_grad


def test_the_layout_in_memory_changes_nothing() -> None:
    tensor = normal(1, 8, 8, 16, 16)
    assert torch.equal(squared_norm([tensor]), squared_norm([tensor.to(memory_format=torch.channels_last)]))


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


def test_what_is_not_finite_stays_so() -> None:
    assert squared_norm([torch.tensor([float("nan"), 1.0])]).isnan()
    assert squared_norm([torch.tensor([float("-inf"), 1.0])]).isinf()
