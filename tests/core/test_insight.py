# SPDX-License-Identifier: Apache-2.0
"""Insight matrices: the cheap forms equal the definition, in value and gradient, and absent classes count nowhere."""

from collections.abc import Callable

import pytest
import torch

from fdg_plugins.core import insight as insight_module
from fdg_plugins.core.insight import (
    GlobalInsight,
    insight_penalty,
    squared_norms,
    update_global_insight,
)
from tests.random_tensors import normal_double as normal

NAN = float("nan")
Y, D, B = 3, 5, 8  # different from each other, so that no transposed form fits
ALL = torch.ones(Y, dtype=torch.bool)


def classes(seed: int, count: int = B, num_classes: int = Y) -> torch.Tensor:
    return torch.randint(num_classes, (count,), generator=torch.Generator().manual_seed(seed))


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features, labels, weight and global insight with nothing in common."""
    return normal(seed, B, D), classes(seed), normal(seed + 1, Y, D), normal(seed + 2, Y, D, Y)


def defined_penalty(
    features: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, present: torch.Tensor
) -> torch.Tensor:
    """Eq. 7 as printed, sample by sample and entry by entry, without the strength."""
    total = 0.0 * (features.sum() + weight.sum())  # depends on both, whatever is present
    for z, label in zip(features, labels.tolist(), strict=True):
        if present[label]:
            insight = torch.stack([weight[y] * z for y in range(len(weight))], dim=1)  # [D, Y]
            total = total + (insight - target[label]).square().sum()
    return total / len(features)


def gradients(penalty: Callable[..., torch.Tensor], *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Value and gradients in features and weight."""
    features, labels, weight, target, present = arguments
    z, w = features.clone().requires_grad_(), weight.clone().requires_grad_()
    value = penalty(z, labels, w, target, present)
    return (value.detach(), *torch.autograd.grad(value, (z, w)))


@pytest.mark.parametrize("by_class", [True, False], ids=["as on a CPU", "as on an accelerator"])
def test_both_ways_of_reading_give_the_penalty(by_class: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insight_module, "_reads_by_class", lambda _: by_class)
    features, labels, weight, target = batch(7)
    present = torch.arange(len(ALL)) != labels[0]
    laid_out = target.transpose(1, 2).contiguous().transpose(1, 2)

    def of_a_round(z: torch.Tensor, y: torch.Tensor, w: torch.Tensor, j: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        return insight_penalty(z, y, w, j, p, squared_norms(laid_out))

    expected = gradients(defined_penalty, features, labels, weight, target, present)
    actual = gradients(of_a_round, features, labels, weight, laid_out, present)
    torch.testing.assert_close(actual, expected)


def test_bfloat16_and_autocast_do_not_lower_the_precision() -> None:
    features, labels, weight, target = (tensor.float() if tensor.is_floating_point() else tensor for tensor in batch(6))
    low = features.bfloat16()
    expected = insight_penalty(low.float(), labels, weight, target, ALL)
    with torch.autocast("cpu", torch.bfloat16):
        actual = insight_penalty(low, labels, weight, target, ALL)
    assert actual.dtype == torch.float32
    assert torch.equal(actual, expected)


def insights(seed: int, sites: int) -> torch.Tensor:
    return normal(seed, sites, Y, D, Y)


def state(seed: int, present: torch.Tensor = ALL) -> GlobalInsight:
    return GlobalInsight(torch.where(present.view(-1, 1, 1), normal(seed, Y, D, Y), 0.0), present)


def test_later_it_moves_by_the_momentum_towards_the_mean() -> None:
    for momentum in [0.0, 0.1, 0.5, 0.9, 1.0]:
        previous, site_insights = state(1), insights(0, 4)
        updated = update_global_insight(previous, site_insights, torch.ones(4, Y), momentum)
        torch.testing.assert_close(
            updated.values, (1 - momentum) * previous.values + momentum * site_insights.mean(dim=0)
        )


def test_a_class_is_averaged_over_the_sites_that_have_it() -> None:
    for filler in [0.0, 100.0, NAN, float("inf")]:
        # Class 0 at both sites, class 1 at the second alone, class 2 nowhere. Numbers of samples do not weigh.
        counts = torch.tensor([[1, 0, 0], [9, 5, 0]])
        site_insights = insights(0, 2)
        expected = torch.stack([site_insights[:, 0].mean(dim=0), site_insights[1, 1], torch.zeros(D, Y)])
        site_insights[counts == 0] = filler
        updated = update_global_insight(None, site_insights, counts, 0.5)
        torch.testing.assert_close(updated.values, expected.double())
        assert updated.present.tolist() == [True, True, False]


def test_a_class_that_no_site_has_this_round_stays_and_a_new_one_starts_at_its_mean() -> None:
    previous = state(1, torch.tensor([True, True, False]))
    counts = torch.tensor([[3, 0, 0], [2, 0, 4]])
    site_insights = insights(0, 2)
    updated = update_global_insight(previous, site_insights, counts, 0.25)
    torch.testing.assert_close(updated.values[0], 0.75 * previous.values[0] + 0.25 * site_insights[:, 0].mean(dim=0))
    assert torch.equal(updated.values[1], previous.values[1])
    assert torch.equal(updated.values[2], site_insights[1, 2])
    assert updated.present.tolist() == [True, True, True]
