# SPDX-License-Identifier: Apache-2.0
"""Partitions of labelled images over sites: every image once, at least so many per site, and as skewed as asked."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core.partition import allot_sites, dirichlet_parts, equal_parts, shard_parts, split_indices

CLASSES, IMAGES, SITES, LEAST = 10, 3000, 40, 12
Parts = list[np.ndarray]


def skewed_parts(alpha: float, labels: np.ndarray, seed: int) -> Parts:
    return dirichlet_parts(labels, SITES, alpha, LEAST, np.random.default_rng(seed))


KINDS: dict[str, Callable[[np.ndarray, int], Parts]] = {
    **{f"dirichlet {alpha:g}": partial(skewed_parts, alpha) for alpha in (1e-300, 0.1, 100, 1e300)},
    "shards": lambda labels, seed: shard_parts(labels, SITES, LEAST, np.random.default_rng(seed)),
    "equal": lambda labels, seed: equal_parts(labels, SITES, LEAST, np.random.default_rng(seed)),
}


@pytest.fixture
def labels() -> np.ndarray:
    return np.random.default_rng(5).integers(CLASSES, size=IMAGES)


def counts(labels: np.ndarray, parts: Parts) -> np.ndarray:
    return np.stack([np.bincount(labels[part], minlength=CLASSES) for part in parts])


def test_every_image_is_at_one_site_and_no_site_has_fewer_than_asked(labels: np.ndarray) -> None:
    for kind in KINDS:
        parts = KINDS[kind](labels, 0)
        assert len(parts) == SITES
        assert sorted(np.concatenate(parts).tolist()) == list(range(IMAGES))
        assert min(map(len, parts)) >= LEAST
        assert all((np.diff(part) > 0).all() for part in parts)


def test_a_small_alpha_gives_few_classes_a_large_one_all_in_the_pools_proportions(labels: np.ndarray) -> None:
    skewed, alike = (counts(labels, KINDS[kind](labels, 0)) for kind in ("dirichlet 0.1", "dirichlet 100"))
    largest = [(table.max(axis=1) / table.sum(axis=1)).mean() for table in (skewed, alike)]
    assert largest[0] > 0.5
    assert largest[1] < 0.25
    assert skewed.sum(axis=1).std() > 3 * alike.sum(axis=1).std()


def test_of_shards_a_site_has_at_most_a_few_classes_and_all_have_as_many_images(labels: np.ndarray) -> None:
    table = counts(labels, KINDS["shards"](labels, 0))
    assert (table > 0).sum(axis=1).max() <= 4  # two shards, each of which may cross from one class to the next
    assert np.ptp(table.sum(axis=1)) <= 2


REPEATABLE = settings(derandomize=True, deadline=None)
SIZES = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), st.integers(1, 40), min_size=1, max_size=5)


@REPEATABLE
@given(sizes=SIZES, data=st.data())
def test_every_domain_has_a_site_and_no_site_is_without_samples(sizes: dict[str, int], data: st.DataObject) -> None:
    num_sites = data.draw(st.integers(len(sizes), sum(sizes.values())))
    allotted = allot_sites(sizes, num_sites)
    assert list(allotted) == sorted(sizes)
    assert sum(allotted.values()) == num_sites
    assert all(1 <= count <= sizes[domain] for domain, count in allotted.items())


@REPEATABLE
@given(sizes=SIZES, data=st.data())
def test_one_site_more_goes_to_the_largest_domain(sizes: dict[str, int], data: st.DataObject) -> None:
    num_sites = data.draw(st.integers(len(sizes), sum(sizes.values()) - 1)) if sum(sizes.values()) > len(sizes) else 0
    if num_sites:
        before, after = allot_sites(sizes, num_sites), allot_sites(sizes, num_sites + 1)
        gained = [domain for domain in sizes if after[domain] != before[domain]]
        assert len(gained) == 1
        assert all(sizes[gained[0]] * before[other] >= sizes[other] * before[gained[0]] for other in sizes)


@pytest.mark.parametrize("sizes", [{"b": 30, "a": 30, "c": 30}, {"a": 30, "b": 30, "c": 30}])
def test_ties_go_by_name_whatever_the_order(sizes: dict[str, int]) -> None:
    assert allot_sites(sizes, 4) == {"a": 2, "b": 1, "c": 1}
    assert allot_sites(sizes, 5) == {"a": 2, "b": 2, "c": 1}


@REPEATABLE
@given(count=st.integers(1, 200), seed=st.integers(0, 100), data=st.data())
def test_a_split_is_disjoint_complete_and_even(count: int, seed: int, data: st.DataObject) -> None:
    parts = split_indices(count, data.draw(st.integers(1, count)), np.random.default_rng(seed))
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))
    sizes = [len(part) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)
