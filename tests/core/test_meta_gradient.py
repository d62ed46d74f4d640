# SPDX-License-Identifier: Apache-2.0
"""Gradients after a step, perturbed heads and insight matrices: the cheap forms equal the definitions."""

import copy

import pytest
import torch
from torch import nn

from fdg_plugins.core import insight as insight_module
from fdg_plugins.core.flatness import Kind, Perturbed, adversarial_predictions, divergence_from
from fdg_plugins.core.insight import (
    GlobalInsight,
    insight_matrix,
    insight_penalty,
    squared_norms,
    update_global_insight,
)
from fdg_plugins.core.moved_gradients import meta_gradients
from tests.random_tensors import normal_double as normal

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


def test_parameters_keep_their_bits_and_buffers_are_those_of_the_first_pass() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).train()
    batches = [torch.randn(5, 3) for _ in range(3)]
    before, other = {name: value.clone() for name, value in model.named_parameters()}, copy.deepcopy(model)

    def compute(number: int | None) -> torch.Tensor:
        model.zero_grad()
        loss = model(batches[number or 0]).square().mean()
        loss.backward()
        return loss.detach()

    meta_gradients(model, compute, ALPHA, 0.01)
    other(batches[0])
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())
    assert all(torch.equal(value, dict(other.named_buffers())[name]) for name, value in model.named_buffers())


def test_singular_values_move_by_the_perturbation_and_never_below_zero() -> None:
    head = nn.Linear(6, 4).double()
    perturbed = Perturbed.of(head, "singular")
    values = torch.linalg.svdvals(head.weight.detach())
    delta = torch.tensor([0.5, -0.5, 0.5, -0.5], dtype=torch.float64)
    logits = perturbed.logits(torch.eye(6, dtype=torch.float64), {"weight": delta}, 2.0)
    found = torch.linalg.svdvals((logits - head.bias).T)
    expected = (values + 2.0 * delta).clamp_min(0).sort(descending=True).values
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("reference", ["its own predictions", "those of another classifier"])
@pytest.mark.parametrize("kind", ["singular", "weight"])
def test_the_direction_is_the_gradient_by_finite_differences(kind: Kind, reference: str) -> None:
    head = nn.Linear(3, 2).double()
    perturbed = Perturbed.of(head, kind)
    start = perturbed.drawn(lambda shape: normal(3, *shape))["weight"]
    features = normal(4, 5, 3)
    own = reference == "its own predictions"
    p = head(features).softmax(dim=1).detach() if own else normal(5, 5, 2).softmax(dim=1)

    def divergence(delta: torch.Tensor) -> float:
        return divergence_from(p, perturbed.logits(features, {"weight": delta}, 0.1)).item()

    numeric = torch.zeros_like(start)
    for place in range(start.numel()):
        moved = torch.zeros_like(start)
        moved.view(-1)[place] = 1e-5
        numeric.view(-1)[place] = (divergence(start + moved) - divergence(start - moved)) / 2e-5
    worst = perturbed.unit({"weight": numeric})
    expected = perturbed.logits(features, worst, 0.3).softmax(dim=1)
    q = adversarial_predictions(perturbed, features, p, lambda shape: normal(3, *shape), 0.1, 0.3)
    torch.testing.assert_close(q, expected, rtol=1e-5, atol=1e-7)


def test_the_divergence_of_a_hand_sized_example() -> None:
    # KL((1/2, 1/2) || (1/4, 3/4)) = 1/2 log 2 + 1/2 log(2/3)
    q, p = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]])
    expected = 0.5 * torch.log(torch.tensor(2.0)) + 0.5 * torch.log(torch.tensor(2 / 3))
    torch.testing.assert_close(divergence_from(q, p.log()), expected)


Y, D, B = 3, 5, 8  # different from each other, so that no transposed form fits
ALL = torch.ones(Y, dtype=torch.bool)


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features, labels, weight and global insight with nothing in common."""
    labels = torch.randint(Y, (B,), generator=torch.Generator().manual_seed(seed))
    return normal(seed, B, D), labels, normal(seed + 1, Y, D), normal(seed + 2, Y, D, Y)


@pytest.mark.parametrize("by_class", [True, False])  # as on a CPU, as on an accelerator
def test_both_ways_of_reading_give_the_penalty(by_class: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insight_module, "_reads_by_class", lambda _: by_class)
    features, labels, weight, target = batch(7)
    features.requires_grad_()
    weight.requires_grad_()
    present = torch.arange(len(ALL)) != labels[0]
    squares = (insight_matrix(features, weight) - target[labels]).square().sum(dim=(1, 2))
    expected = (squares * present[labels]).sum() / B  # eq. 7 as printed, without the strength
    laid_out = target.transpose(1, 2).contiguous().transpose(1, 2)
    actual = insight_penalty(features, labels, weight, laid_out, present, squared_norms(laid_out))
    torch.testing.assert_close(actual, expected)
    slopes = [torch.autograd.grad(value, (features, weight)) for value in (actual, expected)]
    torch.testing.assert_close(*slopes)


def test_bfloat16_and_autocast_do_not_lower_the_precision() -> None:
    features, labels, weight, target = (tensor.float() if tensor.is_floating_point() else tensor for tensor in batch(6))
    low = features.bfloat16()
    expected = insight_penalty(low.float(), labels, weight, target, ALL)
    with torch.autocast("cpu", torch.bfloat16):
        actual = insight_penalty(low, labels, weight, target, ALL)
    assert actual.dtype == torch.float32
    assert torch.equal(actual, expected)


def test_a_class_is_averaged_over_the_sites_that_have_it() -> None:
    for filler in [0.0, 100.0, float("nan"), float("inf")]:
        # Class 0 at both sites, class 1 at the second alone, class 2 nowhere. Numbers of samples do not weigh.
        counts = torch.tensor([[1, 0, 0], [9, 5, 0]])
        site_insights = normal(0, 2, Y, D, Y)
        expected = torch.stack([site_insights[:, 0].mean(dim=0), site_insights[1, 1], torch.zeros(D, Y)])
        site_insights[counts == 0] = filler
        updated = update_global_insight(None, site_insights, counts, 0.5)
        torch.testing.assert_close(updated.values, expected.double())
        assert updated.present.tolist() == [True, True, False]


def test_a_class_that_no_site_has_this_round_stays_and_a_new_one_starts_at_its_mean() -> None:
    present = torch.tensor([True, True, False])
    previous = GlobalInsight(torch.where(present.view(-1, 1, 1), normal(1, Y, D, Y), 0.0), present)
    counts = torch.tensor([[3, 0, 0], [2, 0, 4]])
    site_insights = normal(0, 2, Y, D, Y)
    updated = update_global_insight(previous, site_insights, counts, 0.25)
    torch.testing.assert_close(updated.values[0], 0.75 * previous.values[0] + 0.25 * site_insights[:, 0].mean(dim=0))
    assert torch.equal(updated.values[1], previous.values[1])
    assert torch.equal(updated.values[2], site_insights[1, 2])
    assert updated.present.tolist() == [True, True, True]
