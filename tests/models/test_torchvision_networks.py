# SPDX-License-Identifier: Apache-2.0
"""torchvision's networks by name: on the meta device, where nothing is computed, and tiny ones of their kinds."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import NETWORKS, ExtractorClassifier, Network, check_features, load_pretrained, network_of
from fdg_plugins.models.network import _last_linear
from fdg_plugins.models.torchvision_networks import imagenet_file_name
from tests.tiny_networks import TINY, tiny_vit

# Parameters in torchvision's documentation, which counts 1,000 classes at 224 pixels.
PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "mobilenet_v3_large": 5_483_032,
    "mobilenet_v3_small": 2_542_856,
    "efficientnet_b0": 5_288_548,
    "convnext_tiny": 28_589_128,
    "vit_b_16": 86_567_656,
}
WITHOUT_BUFFERS = ("convnext_tiny", "vit_b_16")


def on_meta(name: str, **settings: Any) -> tuple[nn.Module, int]:
    """Return a network without its head, and its number of features; no parameter has memory."""
    with torch.device("meta"):
        return NETWORKS.get(name).extractor(7, **settings)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_head_gives_way_and_everything_else_is_the_published_network() -> None:
    for name in PARAMETERS:
        from torchvision import models

        extractor, features = on_meta(name)
        with torch.device("meta"):
            published = getattr(models, name)(weights=None)
        record = NETWORKS.get(name)
        assert record.head == _last_linear(name, published)
        own = {
            key: value.shape for key, value in published.state_dict().items() if not key.startswith(f"{record.head}.")
        }
        assert {key: value.shape for key, value in extractor.state_dict().items()} == own
        assert count(extractor) + 1000 * (features + 1) == PARAMETERS[name]
        assert (not list(extractor.buffers())) == (name in WITHOUT_BUFFERS)
        with torch.device("meta"):
            model = ExtractorClassifier(extractor.eval(), nn.Linear(features, 7))
        assert model.features(torch.empty(2, 3, 224, 224, device="meta")).shape == (2, features)
        assert re.fullmatch(rf"{name}\w*-[0-9a-f]{{8}}\.pth", imagenet_file_name(name) or "")


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
def test_a_residual_network_with_group_normalization_has_the_same_parameters_and_no_buffers(name: str) -> None:
    (batch, _), (group, features) = on_meta(name, norm="batch"), on_meta(name, norm="group")
    assert {key: value.shape for key, value in group.named_parameters()} == {
        key: value.shape for key, value in batch.named_parameters()
    }
    assert list(group.buffers()) == []
    assert group(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, features)
    assert imagenet_file_name(name, "group") is None


# --- weights from a file ----------------------------------------------------------------------------


def transformer(image_size: int, seed: int) -> ExtractorClassifier:
    """Return a tiny transformer with patches of 8 pixels in the place of the published one."""
    torch.manual_seed(seed)
    extractor, features = Network(name="tiny_vit", build=tiny_vit).extractor(7, image_size=image_size)
    for value in extractor.parameters():
        nn.init.normal_(value)
    return ExtractorClassifier(extractor, nn.Linear(features, 7))


def test_positions_are_interpolated_to_the_size_of_the_images_and_the_class_token_is_kept(tmp_path: Path) -> None:
    source, model = transformer(32, seed=1), transformer(16, seed=2)
    torch.save({**source.extractor.state_dict(), "heads.head.weight": torch.zeros(1000, 16)}, tmp_path / "vit.pth")
    record = load_pretrained(model, "vit_b_16", "imagenet", tmp_path / "vit.pth")
    assert record.label == "imagenet"
    given, taken = source.extractor.state_dict(), model.extractor.state_dict()
    positions = "encoder.pos_embedding"
    assert (given[positions].shape, taken[positions].shape) == ((1, 17, 16), (1, 5, 16))
    assert torch.equal(taken[positions][:, 0], given[positions][:, 0])
    # With corners aligned, the corners of the grid keep their embeddings.
    corners = given[positions][0, 1:].view(4, 4, 16)[::3, ::3].reshape(4, 16)
    torch.testing.assert_close(taken[positions][0, 1:], corners)
    assert all(torch.equal(taken[name], given[name]) for name in taken if name != positions)


def test_published_weights_are_for_batch_normalization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    tiny, features = Network(name="tiny", build=TINY["tiny_resnet"], head="fc").extractor(7)
    model = ExtractorClassifier(tiny, nn.Linear(features, 7))
    assert load_pretrained(model, "resnet18", "auto", norm="group").label == "from scratch"
    with pytest.raises(SettingsError, match="model resnet18 has no ImageNet weights with these settings"):
        load_pretrained(model, "resnet18", "imagenet", norm="group")
    torch.save(tiny.state_dict(), tmp_path / "own.pth")
    assert load_pretrained(model, "resnet18", "auto", tmp_path / "own.pth", norm="group").label == "pretrained file"


# --- factories without a record ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ("torchvision.models:resnet19", "module 'torchvision.models' has no 'resnet19', expected a function or class"),
        ("torchvision:__version__", "model 'mine' is built by a str, expected a function or class"),
        (3, "model 'mine' is built by a int, expected a function or class"),
    ],
)
def test_what_builds_nothing_is_refused(build: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        network_of(build, name="mine")


def test_images_that_a_network_cannot_take_are_refused_in_one_sentence() -> None:
    model = transformer(16, seed=0).train()
    with pytest.raises(SettingsError, match=r"the model cannot take images of shape \[3, 32, 32\]: \w+: .*\.$"):
        check_features(model, 3, 32)
    assert model.training
