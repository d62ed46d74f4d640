# SPDX-License-Identifier: Apache-2.0
"""The gradient after a step of adaptation: closed forms, and what it leaves as it was."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from fdg_plugins.core.moved_gradients import meta_gradients

CURVATURE, ALPHA = 3.0, 0.1


class Quadratic(nn.Module):
    """L(w) = a w^2 / 2, the same for every part of a batch."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([start], dtype=torch.float64))
        self.asked: list[int | None] = []

    def compute(self, number: int | None) -> torch.Tensor:
        self.asked.append(number)
        self.zero_grad()
        loss = (CURVATURE * self.w.square() / 2).sum()
        loss.backward()
        return loss.detach()


def test_the_gradient_of_a_quadratic_is_the_closed_form() -> None:
    for difference in [1e-3, 1.0]:
        for start in [2.0, -1e-6, 0.0]:
            shrunk = 1 - ALPHA * CURVATURE
            for order, given in ((1, None), (2, difference)):
                model = Quadratic(start)
                loss = meta_gradients(model, model.compute, ALPHA, given)
                assert model.w.grad is not None
                assert model.w.grad.item() == pytest.approx(CURVATURE * shrunk**order * start, rel=1e-6)
                assert loss.item() == pytest.approx(CURVATURE * start**2 / 2)
                assert model.w.item() == start


def test_without_adaptation_it_is_the_gradient_of_the_whole_batch_from_a_single_pass() -> None:
    model = Quadratic(2.0)
    meta_gradients(model, model.compute, 0.0, 0.1)
    assert model.asked == [None]
    assert model.w.grad is not None
    assert model.w.grad.item() == CURVATURE * 2.0


def losses_of(model: nn.Module, batches: list[torch.Tensor]) -> Callable[[int | None], torch.Tensor]:
    def compute(number: int | None) -> torch.Tensor:
        model.zero_grad()
        loss = model(batches[number or 0]).square().mean()
        loss.backward()
        return loss.detach()

    return compute


def test_parameters_keep_their_bits_and_buffers_are_those_of_the_first_pass() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).train()
    batches = [torch.randn(5, 3) for _ in range(3)]
    before = {name: value.clone() for name, value in model.named_parameters()}
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).train()
    other.load_state_dict(model.state_dict())
    meta_gradients(model, losses_of(model, batches), ALPHA, 0.01)
    other(batches[0])
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())
    assert all(torch.equal(value, dict(other.named_buffers())[name]) for name, value in model.named_buffers())
