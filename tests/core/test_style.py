# SPDX-License-Identifier: Apache-2.0
"""Styles of feature maps and amplitudes of images: what changes is as defined, and nothing else does."""

import math

import pytest
import torch
from torch.fft import fft2, fftshift, ifft2, ifftshift

from fdg_plugins.core.spectrum import centred_band, mean_amplitude, mix_amplitudes, replace_amplitude
from fdg_plugins.core.style import explore_styles, next_of_class, oversample, restyle, spread_centres, styles_of
from tests.random_tensors import normal, normal_double

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
        centres = spread_centres(torch.cat(clusters), torch.rand(3, generator=torch.Generator().manual_seed(seed)))
        found = sorted(centres.tolist())
        assert found == [pytest.approx(cluster.mean(dim=0).tolist(), rel=1e-5) for cluster in clusters]


@pytest.mark.parametrize("number", [0, 1, 9])
def test_what_is_appended_is_as_defined_and_makes_classes_even(number: int) -> None:
    for seed in range(6):
        labels = torch.randint(0, 4, (8,), generator=torch.Generator().manual_seed(seed)).tolist()
        counts = {label: labels.count(label) for label in sorted(set(labels))}
        members = {label: [index for index, other in enumerate(labels) if other == label] for label in counts}
        expected = []
        for _ in range(number):  # of the smallest class, its images in turn
            label = min(counts, key=lambda one: (counts[one], one))
            expected.append(members[label][counts[label] % len(members[label])])
            counts[label] += 1
        assert oversample(torch.tensor(labels), 6, number).tolist() == expected


def test_following_the_next_of_a_class_visits_each_of_it_once() -> None:
    labels = torch.tensor([2, 0, 2, 1, 2, 0])
    following = next_of_class(labels, 4)
    assert sorted(following.tolist()) == list(range(6))
    assert torch.equal(labels[following], labels)
    assert following[3] == 3
    assert torch.equal(following[following[following]][labels == 2], torch.tensor([0, 2, 4]))


SIZES = [(16, 16), (17, 17), (16, 17), (17, 16), (28, 28), (8, 20)]


@pytest.mark.parametrize("fraction", [0.0, 0.05, 0.1, 0.25, 0.49, 0.5])
def test_replacing_is_what_the_definition_says(fraction: float) -> None:
    """The centred square of ``(2 b + 1)^2`` bins of the shifted amplitude is replaced, cut at the borders."""
    for height, width in SIZES:
        images, style = normal_double(0, 4, 3, height, width), normal_double(1, 5, 3, height, width)
        half = math.floor(fraction * min(height, width))
        rows = slice(max(height // 2 - half, 0), height // 2 + half + 1)
        columns = slice(max(width // 2 - half, 0), width // 2 + half + 1)
        spectrum, amplitude = fft2(images), fft2(style).abs().mean(dim=0)
        own, new = (fftshift(one, dim=(-2, -1)) for one in (spectrum.abs(), amplitude))
        own[..., rows, columns] = new[..., rows, columns]
        expected = ifft2(ifftshift(own, dim=(-2, -1)) * torch.exp(1j * spectrum.angle())).real
        found = replace_amplitude(images, mean_amplitude(style), centred_band(height, width, fraction))
        torch.testing.assert_close(found, expected)


def test_mixing_is_what_the_definition_says() -> None:
    partners, shares = torch.tensor([2, 0, 3, 1]), torch.tensor([0.1, 0.9, 0.0, 0.5], dtype=torch.float64)
    for size in SIZES:
        images = normal_double(0, 4, 3, *size)
        own, other, share = fft2(images), fft2(images[partners]), shares.view(-1, 1, 1, 1)
        amplitude = share * own.abs() + (1 - share) * other.abs()
        expected = ifft2(amplitude * torch.exp(1j * own.angle())).real
        torch.testing.assert_close(mix_amplitudes(images, partners, shares), expected)
