# SPDX-License-Identifier: Apache-2.0
"""Partitions of labelled images over sites: every image once, at least so many per site, and as skewed as asked."""

from collections.abc import Callable

import numpy as np
import pytest

from fdg_plugins.core.partition import dirichlet_parts, equal_parts, shard_parts

CLASSES, IMAGES, SITES, LEAST = 10, 3000, 40, 12
Parts = list[np.ndarray]
KINDS: dict[str, Callable[[np.ndarray, int], Parts]] = {
    "dirichlet 0.1": lambda labels, seed: dirichlet_parts(labels, SITES, 0.1, LEAST, np.random.default_rng(seed)),
    "dirichlet 100": lambda labels, seed: dirichlet_parts(labels, SITES, 100.0, LEAST, np.random.default_rng(seed)),
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


@pytest.mark.parametrize("alpha", [1e-300, 1e300])
def test_an_extreme_alpha_still_gives_a_partition(alpha: float, labels: np.ndarray) -> None:
    parts = dirichlet_parts(labels, SITES, alpha, LEAST, np.random.default_rng(0))
    assert sum(map(len, parts)) == IMAGES
    assert min(map(len, parts)) >= LEAST
