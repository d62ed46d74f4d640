# SPDX-License-Identifier: Apache-2.0
"""Networks of the registry and of one's own: modules with a linear head, on which the protocol's head is put."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import NETWORKS, Network, build_model
from fdg_plugins.models.registry import HEADS, PROJECTED, parameter_kinds
from fdg_plugins.testing.inputs import same_bits
from tests.random_tensors import normal

NUMBERS = itertools.count()


def plain(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes))


def add(build: Any, **fields: Any) -> str:
    name = f"test_{next(NUMBERS)}"
    NETWORKS.add(Network(name=name, build=build, **fields))
    return name


def test_a_layer_of_the_extractor_may_take_the_place_of_the_head() -> None:
    name = add(plain)
    base, model = (build_model(name, 5, seed=3, head=head) for head in ("two_layer", "projected_two_layer"))
    own = {key for key in model.state_dict() if key not in base.state_dict()}
    assert len(own) == 2
    assert all(key.startswith("extractor.") for key in own)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in base.state_dict().items())
    images = torch.randn(2, 3, 8, 8)
    assert model.features(images).shape == base.features(images).shape
    assert not torch.equal(model.features(images), base.features(images))
    small = build_model("convnet", 5, seed=3, head="projected_two_layer")
    assert small(torch.randn(2, 3, 16, 16)).shape == (2, 5)
    assert "extractor.projection.weight" in small.state_dict()


def test_a_factory_receives_what_it_names_and_keeps_its_own_defaults() -> None:
    seen: list[dict[str, Any]] = []

    def build(num_classes: int, dims: int, channels: int = 8, norm: str = "mine") -> nn.Module:
        seen.append({"num_classes": num_classes, "dims": dims, "channels": channels, "norm": norm})
        return nn.Linear(4, 4)

    for name in (add(build, features=4), add(build, features=4, channels=None)):
        build_model(name, 5, seed=1, channels=2)
        build_model(name, 5, seed=1, channels=2, dims=3, norm="batch")
    assert [tuple(one.values()) for one in seen] == [
        (5, 2, 8, "mine"), (5, 3, 8, "batch"), (5, 2, 2, "mine"), (5, 3, 2, "batch"),
    ]  # fmt: skip


def failing(num_classes: int) -> nn.Module:
    raise ValueError(f"{num_classes} are too many")


class Net(nn.Module):
    def __init__(self, after: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.BatchNorm1d(12))
        self.fc = nn.Linear(12, 2)
        self.after = after

    def forward(self, images: torch.Tensor) -> Any:
        return self.after(self.fc(self.body(images)))


@pytest.mark.parametrize(
    ("build", "fields"),
    [
        (lambda num_classes, width: nn.Linear(width, num_classes), {}),
        (lambda depth, classes: nn.Linear(depth, classes), {}),
        (failing, {}),
        (lambda: nn.Sequential(nn.Flatten()), {}),
        (plain, {"head": "fc"}),
        (plain, {"head": "0"}),
        (lambda: 3, {}),
        *((partial(Net, after), {"head": "fc"}) for after in (nn.Softmax(dim=1), nn.ReLU(), lambda logits: 2 * logits)),
        (partial(Net, nn.Sigmoid()), {}),
        (partial(Net, lambda logits: [logits]), {}),
    ],
)
def test_network_unlike_its_record_is_refused(build: Any, fields: dict[str, Any]) -> None:
    name = add(build, **fields)
    with pytest.raises(SettingsError):
        build_model(name, 2, seed=1, image_size=16)


@pytest.mark.parametrize("wrong", [{"name": "two words"}, {"build": nn.Linear(1, 1)}])
def test_what_is_no_name_or_no_function_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Network(**{"name": "net", "build": plain, **wrong})


SMALL = ("convnet", "strided_convnet", "groupnorm_convnet", "resnet18")


def test_the_seed_alone_decides_the_bits() -> None:
    for head in HEADS:
        for small in SMALL[:3]:
            first = build_model(small, 7, seed=3, head=head)
            torch.rand(5)
            assert same_bits(first.state_dict(), build_model(small, 7, seed=3, head=head).state_dict())
            assert not same_bits(first.state_dict(), build_model(small, 7, seed=4, head=head).state_dict())
            other = head if head == PROJECTED else "linear"
            second = build_model(small, 2, seed=3, head=other)
            assert same_bits(first.extractor.state_dict(), second.extractor.state_dict())


def test_logits_are_the_last_layer_of_the_penultimate_output_bit_for_bit() -> None:
    for head in HEADS:
        for small in SMALL:
            model = build_model(small, 7, seed=1, head=head).eval()
            images = normal(0, 2, NETWORKS.get(small).channels or 3, 32, 32)
            inputs = model.penultimate(images)
            assert inputs.shape == (2, model.last_layer.in_features)
            assert model.features(images).shape == (2, model.feature_size)
            assert model.last_layer.out_features == 7
            assert torch.equal(model(images), model.last_layer(inputs))
            assert model.state_dict()[model.last_layer_names[0]].data_ptr() == model.last_layer.weight.data_ptr()


def test_the_groupnorm_convnet_has_the_published_layers_and_no_buffers() -> None:
    model = build_model("groupnorm_convnet", 10, seed=0)
    # convolutions 1 -> 64 -> 128 -> 128 -> 128 of 3x3 with bias, scale and shift per channel, 128 -> 10
    convolutions = (9 * 1 + 1) * 64 + (9 * 64 + 1) * 128 + 2 * (9 * 128 + 1) * 128
    assert sum(p.numel() for p in model.parameters()) == convolutions + 2 * (64 + 3 * 128) + 129 * 10
    assert set(parameter_kinds(model).values()) == {"trainable"}
    kinds = [type(layer) for layer in model.extractor.children()]
    assert kinds == [nn.Conv2d, nn.ReLU, nn.GroupNorm] * 4 + [nn.AdaptiveAvgPool2d, nn.Flatten]
    assert all(layer.num_groups == 8 for layer in model.extractor.children() if isinstance(layer, nn.GroupNorm))
