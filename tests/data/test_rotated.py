# SPDX-License-Identifier: Apache-2.0
"""Rotated digits: who gets which images, how they are turned, and the batches made of them."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.data import (
    ROTATED_MNIST,
    DomainData,
    ImageArray,
    open_domain,
)
from fdg_plugins.data.published import deal, rotate

REPEATABLE = settings(derandomize=True, deadline=None)


@pytest.fixture(scope="module")
def data() -> DomainData:
    return open_domain(None, "rotateddigits", "angle_15", seed=1)


def pixels_of(data: DomainData) -> torch.Tensor:
    assert isinstance(data.images, ImageArray)
    return data.images.pixels


# --- the data sets ----------------------------------------------------------------------------------


# --- dealing ----------------------------------------------------------------------------------------


@REPEATABLE
@given(count=st.integers(0, 300), limit=st.none() | st.integers(0, 400))
def test_dealing_is_a_partition_of_what_the_limit_leaves_and_even(count: int, limit: int | None) -> None:
    spec = replace(ROTATED_MNIST, limit=limit)
    hands = [deal(count, spec, domain) for domain in spec.domains]
    indices = [index for hand in hands for index in hand.values()]
    used = count if limit is None else min(count, limit)
    assert len(set(indices)) == len(indices) == used
    assert set(indices) <= set(range(count))
    assert sorted(name for hand in hands for name in hand) == [f"{position:05d}" for position in range(used)]
    assert max(map(len, hands)) - min(map(len, hands)) <= 1


# --- turning ----------------------------------------------------------------------------------------


def test_a_right_angle_turns_counter_clockwise() -> None:
    images = torch.zeros(2, 5, 5, dtype=torch.uint8)
    images[1, 2, 4] = 200  # in the middle of the right edge
    turned = rotate(images, 90)
    assert turned[1, 0, 2] == 200
    assert turned.sum() == 200


# --- the sources ------------------------------------------------------------------------------------


# --- opening a domain -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rotatedmnist", "rotatedmnist_7k"])
def test_without_a_data_root_digits_stand_in_and_the_split_says_so(name: str, data: DomainData) -> None:
    opened = open_domain(None, name, "angle_15", seed=1)
    assert (opened.dataset, opened.split) == (name, "rotateddigits/90-10@1")
    assert (opened.test, opened.split_hash) == (data.test, data.split_hash)
    assert torch.equal(pixels_of(opened), pixels_of(data))


# --- batches ----------------------------------------------------------------------------------------
