# SPDX-License-Identifier: Apache-2.0
"""Styles of feature maps: what changes is the style and nothing else, and what is drawn is as defined."""

import pytest
import torch

from fdg_plugins.core.style import explore_styles, next_of_class, oversample, restyle, spread_centres, styles_of
from tests.random_tensors import normal


def uniforms(seed: int, number: int) -> torch.Tensor:
    return torch.rand(number, generator=torch.Generator().manual_seed(seed))


MAPS = 3 * normal(0, 4, 2, 5, 3) + 1


def test_a_change_of_style_keeps_the_order_of_the_positions_and_changes_no_argument() -> None:
    maps, styles = MAPS.clone(), styles_of(MAPS).flip(0)
    changed = restyle(maps, styles)
    assert torch.equal(changed.flatten(2).argsort(), maps.flatten(2).argsort())
    assert torch.equal(maps, MAPS)
    assert torch.equal(styles, styles_of(MAPS).flip(0))


def test_exploring_moves_away_from_the_mean_by_a_multiple_of_the_distance() -> None:
    styles = torch.tensor([[1.0, 4.0], [3.0, 2.0]])  # their mean is (2, 3)
    assert torch.equal(explore_styles(styles, styles, 0.0), styles)
    assert explore_styles(styles, styles, 3.0).tolist() == [[-2.0, 7.0], [6.0, 0.0]]  # 2 + 3 * (2 - 3) is below zero
    assert torch.equal(explore_styles(styles[:1], styles[:1], 3.0), styles[:1])


def test_well_separated_clusters_have_one_centre_each_which_is_their_mean() -> None:
    for seed in range(5):
        clusters = [100 * (number + 1) + normal(number, 6, 2) for number in range(3)]
        centres = spread_centres(torch.cat(clusters), uniforms(seed, 3))
        found = sorted(centres.tolist())
        assert found == [pytest.approx(cluster.mean(dim=0).tolist(), rel=1e-5) for cluster in clusters]


def by_hand(labels: list[int], number: int) -> list[int]:
    """What is appended, one sample after another."""
    counts = {label: labels.count(label) for label in sorted(set(labels))}
    turns = dict.fromkeys(counts, 0)
    found = []
    for _ in range(number):
        label = min(counts, key=lambda one: (counts[one], one))
        members = [index for index, other in enumerate(labels) if other == label]
        found.append(members[turns[label] % len(members)])
        counts[label] += 1
        turns[label] += 1
    return found


def test_what_is_appended_is_as_defined_and_makes_classes_even() -> None:
    for seed in range(6):
        for number in [0, 1, 9]:
            labels = torch.randint(0, 4, (8,), generator=torch.Generator().manual_seed(seed))
            added = oversample(labels, 6, number)
            assert added.tolist() == by_hand(labels.tolist(), number)


def test_following_the_next_of_a_class_visits_each_of_it_once() -> None:
    labels = torch.tensor([2, 0, 2, 1, 2, 0])
    following = next_of_class(labels, 4)
    assert sorted(following.tolist()) == list(range(6))
    assert torch.equal(labels[following], labels)
    assert following[3] == 3
    assert torch.equal(following[following[following]][labels == 2], torch.tensor([0, 2, 4]))
