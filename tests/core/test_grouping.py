# SPDX-License-Identifier: Apache-2.0
"""Matching of group means: what it is for one site per group, for equal members, and against the optimum over sites."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import gram_matrix, group_means, match, match_groups, matching_objective

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=30)
KAPPA = 0.5


def rows(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 20, generator=generator, dtype=torch.float64) + 0.3


def simplex(count: int, seed: int) -> torch.Tensor:
    values = torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    return values / values.sum()


@REPEATABLE
@given(seed=st.integers(0, 1000), damping=st.sampled_from([0.0, 1e-4]))
def test_one_site_per_group_is_the_matching_of_sites_bit_for_bit(seed: int, damping: float) -> None:
    gram, p = gram_matrix(rows(5, seed)), simplex(5, seed)
    found, moving = match_groups(gram, p, KAPPA, group_means("abcde", p), damping)
    plain = match(gram, p, KAPPA, damping)
    assert torch.equal(found.weights, plain.weights)
    assert (found.objective, found.gap) == (plain.objective, plain.gap)
    assert moving.tolist() == [True] * 5


@REPEATABLE
@given(seed=st.integers(0, 1000), damping=st.sampled_from([0.0, 1e-2]))
def test_gamma_is_on_the_simplex_and_never_below_the_optimum_over_all_sites(seed: int, damping: float) -> None:
    gram, p, groups = gram_matrix(rows(7, seed)), simplex(7, seed), "abacabc"
    found, _ = match_groups(gram, p, KAPPA, group_means(groups, p), damping)
    assert bool((found.weights >= 0).all())
    assert float(found.weights.sum()) == pytest.approx(1.0)
    value = matching_objective(gram, p, KAPPA, found.weights, damping)
    assert value == pytest.approx(found.objective, rel=1e-9)
    assert value >= match(gram, p, KAPPA, damping).objective * (1 - 1e-8)


def test_a_group_of_weight_zero_has_the_plain_mean_and_an_idle_group_is_not_matched() -> None:
    p = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64)
    means = group_means("aabb", p)
    assert means.tolist() == [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    updates = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1e-9, 0.0], [1e-9, 0.0]], dtype=torch.float64)
    found, moving = match_groups(gram_matrix(updates), p, KAPPA, means, idle_below=1e-3)
    assert moving.tolist() == [True, False]
    assert found.weights.tolist() == [0.5, 0.5, 0.0, 0.0]
