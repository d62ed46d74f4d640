# SPDX-License-Identifier: Apache-2.0
"""Every model of the registry goes through the same properties."""

import pytest
import torch
from torch import nn

from fdg_plugins.models import HEADS, NETWORKS, ExtractorClassifier, build_model, model_names, parameter_kinds
from fdg_plugins.models.registry import PROJECTED

SMALL = (
    "convnet",
    "strided_convnet",
    "groupnorm_convnet",
    "resnet18",
)  # torchvision's larger networks take a second to build; test_torchvision_networks.py is about them
QUICK = tuple(name for name in model_names() if name in SMALL or name.startswith("monai"))


@pytest.fixture(scope="module", params=QUICK)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(name: str) -> ExtractorClassifier:
    return build_model(name, 7, seed=1).eval()


def images_for(name: str, size: int = 32, count: int = 2) -> torch.Tensor:
    """Return noise in the shape of a model's images."""
    return torch.randn(count, NETWORKS.get(name).channels or 3, size, size, generator=torch.Generator().manual_seed(0))


def same_bits(first: nn.Module, second: nn.Module) -> bool:
    one, two = first.state_dict(), second.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def test_every_entry_has_the_kind_that_its_type_says(model: ExtractorClassifier) -> None:
    kinds = parameter_kinds(model)
    state = model.state_dict()
    assert list(kinds) == list(state)
    assert {name for name, kind in kinds.items() if kind == "trainable"} == {
        name for name, _ in model.named_parameters()
    }
    for name, kind in kinds.items():
        if name.endswith(("running_mean", "running_var")):
            assert kind == "float_buffer"
        if name.endswith("num_batches_tracked"):
            assert kind == "integer_buffer"
        assert state[name].is_floating_point() == (kind != "integer_buffer")


def test_the_seed_alone_decides_the_bits() -> None:
    for head in HEADS:
        for small in SMALL[:3]:
            first = build_model(small, 7, seed=3, head=head)
            torch.rand(5)
            assert same_bits(first, build_model(small, 7, seed=3, head=head))
            assert not same_bits(first, build_model(small, 7, seed=4, head=head))
            other = head if head == PROJECTED else "linear"
            assert same_bits(first.extractor, build_model(small, 2, seed=3, head=other).extractor)


def test_logits_are_the_last_layer_of_the_penultimate_output_bit_for_bit() -> None:
    for head in HEADS:
        for small in SMALL:
            model = build_model(small, 7, seed=1, head=head).eval()
            images = images_for(small)
            inputs = model.penultimate(images)
            assert inputs.shape == (2, model.last_layer.in_features)
            assert model.features(images).shape == (2, model.feature_size)
            assert model.last_layer.out_features == 7
            assert torch.equal(model(images), model.last_layer(inputs))
            assert model.state_dict()[model.last_weight_name].data_ptr() == model.last_layer.weight.data_ptr()


def test_the_groupnorm_convnet_has_the_published_layers_and_no_buffers() -> None:
    model = build_model("groupnorm_convnet", 10, seed=0)
    # convolutions 1 -> 64 -> 128 -> 128 -> 128 of 3x3 with bias, scale and shift per channel, 128 -> 10
    convolutions = (9 * 1 + 1) * 64 + (9 * 64 + 1) * 128 + 2 * (9 * 128 + 1) * 128
    assert sum(p.numel() for p in model.parameters()) == convolutions + 2 * (64 + 3 * 128) + 129 * 10
    assert set(parameter_kinds(model).values()) == {"trainable"}
    kinds = [type(layer) for layer in model.extractor.children()]
    assert kinds == [nn.Conv2d, nn.ReLU, nn.GroupNorm] * 4 + [nn.AdaptiveAvgPool2d, nn.Flatten]
    assert all(layer.num_groups == 8 for layer in model.extractor.children() if isinstance(layer, nn.GroupNorm))
    assert isinstance(model.extractor, nn.Sequential)
    pooled = model.extractor[:-2](images_for("groupnorm_convnet", 28))
    assert pooled.shape == (2, 128, 14, 14)
    torch.testing.assert_close(pooled.mean(dim=(2, 3)), model.features(images_for("groupnorm_convnet", 28)))
