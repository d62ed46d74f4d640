# SPDX-License-Identifier: Apache-2.0
"""Low-rank adapters on networks of torchvision's classes: where they are, and what they leave as it is."""

import copy

import pytest
import torch
from torch import nn
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import ExtractorClassifier, Network
from fdg_plugins.models.adapters import adapter_names, add_adapters
from tests.tiny_networks import tiny_convnext, tiny_resnet, tiny_vit

CLASSES, RANK, SIZE = 3, 2, 16


def tiny_resnet_with_batchnorm() -> nn.Module:
    return ResNet(BasicBlock, [1, 1, 1, 1], width_per_group=64)


@pytest.fixture(params=[tiny_resnet, tiny_resnet_with_batchnorm, tiny_vit, tiny_convnext])
def plain(request: pytest.FixtureRequest) -> ExtractorClassifier:
    """A network with random parameters and without adapters, in evaluation mode."""
    torch.manual_seed(3)
    extractor, features = Network(name="tiny", build=request.param).extractor(CLASSES, image_size=SIZE)
    return ExtractorClassifier(extractor, nn.Linear(features, CLASSES)).eval()


SHAPE = (3, SIZE, SIZE)


def adapted(model: ExtractorClassifier, seed: int = 0, image_shape: tuple[int, ...] = SHAPE) -> ExtractorClassifier:
    pytest.importorskip("peft")
    changed = copy.deepcopy(model)
    add_adapters(changed, RANK, image_shape, seed=seed)
    return changed


def images() -> torch.Tensor:
    return torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


def test_new_adapters_change_no_logit_and_no_weight(plain: ExtractorClassifier) -> None:
    model = adapted(plain)
    with torch.no_grad():
        assert torch.equal(model(images()), plain(images()))
    own = {name.replace(".base_layer.", "."): value for name, value in model.state_dict().items()}
    assert all(torch.equal(own[name], value) for name, value in plain.state_dict().items())
    assert len(own) == len(plain.state_dict()) + len(adapter_names(model))


def test_a_linear_layer_with_an_adapter_has_the_weight_of_the_paper() -> None:
    # h = W x + (alpha / r) B A x with alpha = r, equation 3.
    model = adapted(ExtractorClassifier(nn.Sequential(nn.Linear(4, 5)), nn.Linear(5, CLASSES)), image_shape=(4,))
    state = model.state_dict()
    first, second = (state[f"extractor.0.lora_{one}.default.weight"] for one in "AB")
    nn.init.normal_(second, generator=torch.Generator().manual_seed(2))
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    weight = state["extractor.0.base_layer.weight"] + second @ first
    expected = inputs @ weight.T + state["extractor.0.base_layer.bias"]
    torch.testing.assert_close(model.features(inputs), expected)


def test_a_network_without_a_layer_for_adapters_is_refused() -> None:
    with pytest.raises(SettingsError):
        adapted(ExtractorClassifier(nn.Flatten(), nn.Linear(4, CLASSES)), image_shape=(4,))


def test_gradients_reach_adapters_and_head_alone(plain: ExtractorClassifier) -> None:
    model = adapted(plain)
    model(images()).sum().backward()
    moved = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert moved == {*adapter_names(model), *model.head_names}
