# SPDX-License-Identifier: Apache-2.0
"""Domains over sites: sites go where most samples wait, and each sample goes to one site."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core.domains import allot_sites, split_indices

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
def test_one_site_more_goes_to_the_domain_with_most_samples_per_site(
    sizes: dict[str, int], data: st.DataObject
) -> None:
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


def test_a_split_is_random_and_repeatable() -> None:
    first, again, other = (
        np.concatenate(split_indices(100, 3, np.random.default_rng(seed))).tolist() for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other
    assert first != list(range(100))
