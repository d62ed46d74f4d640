# SPDX-License-Identifier: Apache-2.0
"""StableFDG's network: the stages are those of the paper, attention sums to one, and names and modes stay."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.models.styled import PositionAttention, StyledClassifier, stages_of
from fdg_plugins.testing.inputs import same_bits
from tests.random_tensors import normal

SHAPE = (3, 32, 32)
IMAGES = normal(0, 4, *SHAPE)


def test_the_stages_of_a_residual_network_are_its_first_three_layers() -> None:
    model = build_model("resnet18", 3, seed=1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = stages_of(model, SHAPE)
    assert [tuple(stage) for stage in found] == [("layer1", 64), ("layer2", 128), ("layer3", 256)]
    assert model.training
    assert same_bits(model.state_dict(), before)


def test_padding_ends_no_stage() -> None:
    found = stages_of(build_model("efficientnet_lite0", 3, seed=1), (3, 96, 96))
    assert found == (("blocks.3.layers.0", 144), ("blocks.5.layers.0", 240), ("blocks.11.layers.0", 672))


class WithShortcut(nn.Module):
    """Maps of two sizes, of which a shortcut passes by all modules with larger ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 2, stride=2)
        self.shortcut, self.pooling = nn.Conv2d(3, 8, 2, stride=2), nn.AdaptiveAvgPool2d(1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.second(self.first(images)) + self.shortcut(images)
        return self.pooling(maps).flatten(1)


def test_a_network_whose_larger_maps_a_shortcut_passes_by_is_refused() -> None:
    with pytest.raises(SettingsError):
        stages_of(ExtractorClassifier(WithShortcut(), nn.Linear(8, 3)), SHAPE)


def test_changed_maps_are_what_the_next_stage_sees_and_only_within_the_block() -> None:
    plain = build_model("convnet", 3, seed=1).eval()
    own = copy.deepcopy(plain)
    model = StyledClassifier(own, stages_of(own, SHAPE)).eval()
    seen: list[tuple[int, int]] = []

    def zero(number: int, maps: torch.Tensor) -> torch.Tensor:
        seen.append((number, maps.shape[1]))
        return torch.zeros_like(maps) if number == 2 else maps

    with model.changed(zero):
        changed = model.feature_map(IMAGES)
    assert seen == [(0, 32), (1, 64), (2, 128)]
    assert torch.equal(changed, changed[:1].expand_as(changed))  # all images are the same now
    assert torch.equal(model.feature_map(IMAGES), plain.feature_map(IMAGES))
    assert len(seen) == 3


def test_the_weights_of_the_positions_are_those_of_the_definition() -> None:
    attention, maps, pairs = PositionAttention(6, 4), normal(0, 3, 3, 6, 6).reshape(3, 6, 3, 6), torch.tensor([1, 0, 2])
    query, key = (normalize(layer(maps), dim=1).flatten(2) for layer in (attention.query, attention.key))
    expected = []
    for number, pair in enumerate(pairs.tolist()):
        similar = ((query[number] + query[pair]) / 2).T @ key[number]  # queries x keys
        expected.append(similar.mean(dim=0).softmax(dim=0).view(1, 3, 6))
    weights = attention(maps, pairs)
    torch.testing.assert_close(weights, torch.stack(expected))
    torch.testing.assert_close(weights.sum(dim=(1, 2, 3)), torch.ones(3))
    torch.testing.assert_close(attention(maps), attention(maps, torch.arange(3)))
