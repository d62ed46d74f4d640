# SPDX-License-Identifier: Apache-2.0
"""Insight matrices: the cheap forms equal the definition, in value and gradient, and absent classes count nowhere."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import insight as insight_module
from fdg_plugins.core.insight import (
    GlobalInsight,
    class_means,
    feature_penalty,
    insight_from_means,
    insight_matrix,
    insight_penalty,
    logit_penalty,
    squared_norms,
    update_global_insight,
)
from tests.random_tensors import normal_double as normal

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=30)
SEEDS = st.integers(0, 2**31)
NAN = float("nan")
Y, D, B = 3, 5, 8  # different from each other, so that no transposed form fits
ALL = torch.ones(Y, dtype=torch.bool)


# --- inputs, and the penalty as defined ---


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


# --- insight matrices and class means ---


def test_the_insight_of_one_sample_by_hand() -> None:
    # z = (1, 2), W = ((3, 4), (5, 6), (7, 8)): I[d, y] = W[y, d] z[d], two features by three classes.
    insight = insight_matrix(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]))
    assert insight.tolist() == [[[3.0, 5.0, 7.0], [8.0, 12.0, 16.0]]]


@REPEATABLE
@given(seed=SEEDS)
def test_the_sums_of_an_insight_over_features_are_the_logits_without_bias(seed: int) -> None:
    features, _, weight, _ = batch(seed)
    insight = insight_matrix(features, weight)
    assert insight.shape == (B, D, Y)
    torch.testing.assert_close(insight.sum(dim=1), torch.nn.functional.linear(features, weight))


@REPEATABLE
@given(seed=SEEDS)
def test_the_mean_insight_of_a_class_is_rebuilt_from_its_mean_features(seed: int) -> None:
    features, labels, weight, _ = batch(seed)
    means, counts = class_means(features, labels, Y)
    rebuilt, insight = insight_from_means(means, weight), insight_matrix(features, weight)
    for label in labels.unique().tolist():
        assert counts[label] == (labels == label).sum()
        torch.testing.assert_close(rebuilt[label], insight[labels == label].mean(dim=0))


def test_class_means_by_hand() -> None:
    means, counts = class_means(torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, 5.0]]), torch.tensor([2, 2, 0]), 3)
    assert means[[0, 2]].tolist() == [[5.0, 5.0], [2.0, 4.0]]
    assert counts.tolist() == [1, 0, 2]


def test_the_mean_of_a_class_without_samples_is_not_zero() -> None:
    means, counts = class_means(torch.ones(2, D), torch.tensor([0, 0]), Y)
    assert counts.tolist() == [2, 0, 0]
    assert bool(means[1:].isnan().all())


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0]])
def test_a_label_that_is_no_class_is_refused(labels: list[int]) -> None:
    with pytest.raises(ValueError, match=rf"labels from 0 to 2, got {min(labels)} to {max(labels)}"):
        class_means(torch.ones(2, D), torch.tensor(labels), Y)


# --- the penalty ---


@REPEATABLE
@given(seed=SEEDS, present=st.lists(st.booleans(), min_size=Y, max_size=Y))
def test_the_expanded_penalty_is_the_defined_one_in_value_and_gradients(seed: int, present: list[bool]) -> None:
    arguments = (*batch(seed), torch.tensor(present))
    for ours, defined in zip(
        gradients(insight_penalty, *arguments), gradients(defined_penalty, *arguments), strict=True
    ):
        torch.testing.assert_close(ours, defined, rtol=1e-10, atol=1e-10)


def test_the_penalty_of_one_sample_by_hand() -> None:
    # z = (1, 2), W = ((1, 0), (0, 1)): I = ((1, 0), (0, 2)). J = ((0, 1), (0, 0)) has distances 1, -1, 0, 2 from it:
    # squares 1 + 1 + 4 = 6. J' would give ((1, 0), (-1, 2)), which has the same: so W = ((1, 0), (3, 1)), with
    # I = ((1, 3), (0, 2)) and distances 1, 2, 0, 2 (9), for J' 1, 3, -1, 2 (15).
    target = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    weight = torch.tensor([[1.0, 0.0], [3.0, 1.0]])
    arguments = torch.tensor([[1.0, 2.0]]), torch.tensor([1]), weight
    present = torch.tensor([False, True])
    other = torch.full((2, 2), 9.0)
    assert insight_penalty(*arguments, torch.stack([other, target]), present).item() == 9.0
    assert insight_penalty(*arguments, torch.stack([other, target.t()]), present).item() == 15.0


@pytest.mark.parametrize("present", [[True, True, True], [True, False, True], [False, False, False]])
def test_gradients_agree_with_finite_differences(present: list[bool]) -> None:
    features, labels, weight, target = batch(4)
    z, w = features.requires_grad_(), weight.requires_grad_()
    assert torch.autograd.gradcheck(lambda z, w: insight_penalty(z, labels, w, target, torch.tensor(present)), (z, w))


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
def test_a_sample_at_its_target_costs_nothing_and_is_not_pulled(scale: float) -> None:
    weight, means, labels = normal(1, Y, D), scale * normal(2, Y, D), classes(3)
    value, by_features, by_weight = gradients(
        insight_penalty, means[labels], labels, weight, insight_from_means(means, weight), ALL
    )
    assert 0 <= value <= 1e-13 * scale**2
    assert by_features.abs().max() <= 1e-13 * scale
    assert by_weight.abs().max() <= 1e-12 * scale**2


def test_in_float32_the_error_is_a_few_roundings_of_the_norms_and_the_value_never_negative() -> None:
    for noise in [1.0, 1e-2, 1e-4, 0.0]:
        weight, means, labels = normal(1, 20, 300).float() / 17, normal(2, 20, 300).float(), classes(3, 64, 20)
        features = means[labels] + noise * normal(4, 64, 300).float()
        target, present = insight_from_means(means, weight), torch.ones(20, dtype=torch.bool)
        exact = gradients(defined_penalty, features.double(), labels, weight.double(), target.double(), present)
        ours = gradients(insight_penalty, features, labels, weight, target, present)
        insight = insight_matrix(features, weight).flatten(1).norm(dim=1)
        size = (insight + target.flatten(1).norm(dim=1)[labels]).square().max()
        assert ours[0] >= 0
        assert abs(ours[0] - exact[0]) <= 5e-7 * size
        # The gradients err relative to their terms, also for the samples whose value came out negative.
        terms = 2 * features.abs() * weight.square().sum(dim=0) / len(features)
        assert bool(((ours[1] - exact[1]).abs() <= 2e-6 * (terms + exact[1].abs())).all())
        assert (ours[2] - exact[2]).norm() <= 1e-6 * (exact[2].norm() + size / weight.norm())


def test_samples_near_their_target_are_all_pulled_whatever_the_rounding_of_their_value() -> None:
    weight, means, labels = normal(1, 20, 300).float() / 17, normal(2, 20, 300).float(), classes(3, 64, 20)
    features, target = means[labels] + 1e-4, insight_from_means(means, weight)
    present = torch.ones(20, dtype=torch.bool)
    alone = [insight_penalty(features[i : i + 1], labels[i : i + 1], weight, target, present) for i in range(64)]
    _, by_features, _ = gradients(insight_penalty, features, labels, weight, target, present)
    assert sum(value == 0 for value in alone) > 5  # those that came out negative
    assert bool((by_features.sum(dim=1) > 0).all())


@pytest.mark.parametrize("by_class", [True, False], ids=["as on a CPU", "as on an accelerator"])
def test_both_ways_of_reading_the_insight_with_norms_and_layout_of_a_round_give_the_defined_penalty(
    by_class: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# --- other targets ---


@REPEATABLE
@given(seed=SEEDS, present=st.lists(st.booleans(), min_size=Y, max_size=Y))
def test_features_and_logits_are_drawn_to_the_mean_of_their_class(seed: int, present: list[bool]) -> None:
    known, labels = torch.tensor(present), classes(seed)
    for penalty, width in ((feature_penalty, D), (logit_penalty, Y)):
        values, means = normal(seed, B, width), normal(seed + 1, Y, width)
        defined = sum(float((values[i] - means[k]).square().sum()) * present[k] for i, k in enumerate(labels.tolist()))
        assert penalty(values, labels, means, known).item() == pytest.approx(defined / B, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("penalty", [feature_penalty, logit_penalty])
def test_gradients_of_the_other_targets_agree_with_finite_differences(penalty: Callable[..., torch.Tensor]) -> None:
    values, means, present = normal(1, B, Y).requires_grad_(), normal(2, Y, Y), torch.tensor([True, False, True])
    assert torch.autograd.gradcheck(lambda values: penalty(values, classes(3), means, present), (values,))


def test_with_one_weight_for_all_classes_the_insight_penalty_is_that_of_the_features_times_their_number() -> None:
    features, labels, _, _ = batch(7)
    weight, means = torch.ones(Y, D, dtype=torch.float64), normal(8, Y, D)
    insight = insight_penalty(features, labels, weight, insight_from_means(means, weight), ALL)
    torch.testing.assert_close(insight, Y * feature_penalty(features, labels, means, ALL))


# --- the server ---


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


def test_a_round_without_any_class_changes_nothing() -> None:
    previous = state(1, torch.tensor([True, False, True]))
    updated = update_global_insight(previous, insights(0, 2), torch.zeros(2, Y), 0.5)
    assert torch.equal(updated.values, previous.values)
    assert torch.equal(updated.present, previous.present)


def test_the_order_of_the_sites_does_not_matter() -> None:
    counts = torch.tensor([[1, 0, 2], [1, 1, 0], [0, 3, 1], [1, 1, 1]])
    site_insights = insights(0, 4)
    first = update_global_insight(state(1), site_insights, counts, 0.5)
    for order in itertools.islice(itertools.permutations(range(4)), 1, None):
        other = update_global_insight(state(1), site_insights[list(order)], counts[list(order)], 0.5)
        torch.testing.assert_close(other.values, first.values, rtol=1e-14, atol=1e-14)


def test_equal_sites_give_that_insight_for_ever() -> None:
    insight = normal(0, 1, Y, D, Y).float()
    current = update_global_insight(None, insight.repeat(3, 1, 1, 1), torch.ones(3, Y), 0.3)
    for _ in range(100):
        current = update_global_insight(current, insight.repeat(3, 1, 1, 1), torch.ones(3, Y), 0.3)
    assert torch.equal(current.values, insight[0])


def test_any_target_of_a_class_is_averaged_alike_and_keeps_its_dtype() -> None:
    cases_1: list[tuple[int, ...]] = [(Y, D), (Y, Y), (Y, D, Y)]
    cases_2: list[torch.dtype] = [torch.float32, torch.float64]
    for shape in cases_1:
        for dtype in cases_2:
            values, counts = normal(0, 2, *shape).to(dtype), torch.tensor([[1, 0, 0], [1, 1, 0]])
            updated = update_global_insight(None, values, counts, 0.5)
            again = update_global_insight(updated, values, counts, 0.5)
            for result in (updated, again):
                assert (result.values.dtype, result.values.shape, result.present.dtype) == (dtype, shape, torch.bool)
                torch.testing.assert_close(result.values[0], values[:, 0].mean(dim=0))
                assert torch.equal(result.values[1], values[1, 1])


def test_bad_input_is_refused_with_the_reason() -> None:
    cases: list[tuple[GlobalInsight | None, Any, torch.Tensor, float, str]] = [
        (None, torch.ones(1, Y, D, Y), torch.ones(1, Y), -0.1, r"\[0, 1\], got -0.1"),
        (None, torch.ones(1, Y, D, Y), torch.ones(1, Y), 1.1, r"\[0, 1\], got 1.1"),
        (None, torch.ones(1, Y, D, Y), torch.ones(1, Y), NAN, r"\[0, 1\], got nan"),
        (None, [], torch.ones(0, Y), 0.5, "at least one site"),
        (None, torch.ones(1, Y, D, Y), torch.ones(Y), 0.5, r"counts \[U, Y\]"),
        (None, torch.ones(1, Y, D, Y), -torch.ones(1, Y), 0.5, "none negative"),
        (None, torch.ones(1, Y, D, Y), torch.ones(2, Y), 0.5, "zip"),
        (None, torch.ones(1, Y, D, Y), torch.ones(1, Y + 1), 0.5, "position 0 has shape"),
        (
            None,
            [torch.ones(Y, D, Y), torch.ones(Y, D + 1, Y)],
            torch.ones(2, Y),
            0.5,
            r"position 1 has shape \[3, 6, 3\]",
        ),
        (None, [torch.ones(Y, D, Y), torch.full((Y, D, Y), NAN)], torch.ones(2, Y), 0.5, "position 1 has a value that"),
        (state(0), torch.ones(1, Y, D), torch.ones(1, Y), 0.5, r"shape \[3, 5, 3\], got \[3, 5\]"),
    ]
    for previous, site_insights, counts, momentum, message in cases:
        with pytest.raises(ValueError, match=message):
            update_global_insight(previous, site_insights, counts, momentum)
