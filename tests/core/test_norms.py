# SPDX-License-Identifier: Apache-2.0
"""The squared length of many tensors: exact where it can be known, the same for any number of threads."""

from collections.abc import Iterator

import pytest
import torch

from fdg_plugins.core.linear import BLOCK
from fdg_plugins.core.norms import squared_norm


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("size", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_it_is_the_sum_of_all_squares_of_all_tensors_whatever_their_sizes(size: int) -> None:
    tensors = [normal(1, size), normal(2, 3, 2), torch.tensor(2.0)]
    expected = sum(float((tensor.double() ** 2).sum()) for tensor in tensors)
    result = squared_norm(tensors)
    assert (result.shape, result.dtype) == ((), torch.float64)
    assert result.item() == pytest.approx(expected, rel=1e-12)


def test_more_blocks_than_fit_into_one_are_summed_in_turn() -> None:
    blocks = BLOCK + 3
    assert squared_norm([torch.ones(1)] * blocks).item() == blocks


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_scales_at_which_float32_has_no_squares_are_legal(scale: float) -> None:
    assert squared_norm([torch.tensor([3.0, 4.0]) * scale]).sqrt().item() == pytest.approx(5 * scale, rel=1e-6)


def test_the_gradient_is_twice_the_tensor() -> None:
    tensors = [normal(1, 5, 3).requires_grad_(), normal(2, 4).requires_grad_()]
    squared_norm(tensors).backward()
    for tensor in tensors:
        assert tensor.grad is not None
        assert torch.equal(tensor.grad, 2 * tensor.detach())


def test_the_layout_in_memory_changes_nothing() -> None:
    tensor = normal(1, 8, 8, 16, 16)
    assert torch.equal(squared_norm([tensor]), squared_norm([tensor.to(memory_format=torch.channels_last)]))


@pytest.mark.usefixtures("_threads")
def test_the_number_of_threads_changes_no_bit() -> None:
    tensors = [normal(1, 40 * BLOCK + 5), normal(2, 2 * BLOCK), normal(3, 7)]
    results = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        results.append(squared_norm(tensors))
    assert all(torch.equal(result, results[0]) for result in results)


def test_what_is_not_finite_stays_so() -> None:
    assert squared_norm([torch.tensor([float("nan"), 1.0])]).isnan()
    assert squared_norm([torch.tensor([float("-inf"), 1.0])]).isinf()
