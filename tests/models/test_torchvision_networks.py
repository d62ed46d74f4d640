# SPDX-License-Identifier: Apache-2.0
"""torchvision's networks by name: on the meta device, where nothing is computed, and tiny ones of their kinds."""

import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fdg_plugins.models import NETWORKS, ExtractorClassifier, Network, load_pretrained
from fdg_plugins.models.torchvision_networks import imagenet_file_name
from tests.tiny_networks import tiny_vit

# Parameters in torchvision's documentation, which counts 1,000 classes at 224 pixels.
PARAMETERS = {
    "alexnet": 61_100_840,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "mobilenet_v3_large": 5_483_032,
    "mobilenet_v3_small": 2_542_856,
    "efficientnet_b0": 5_288_548,
    "convnext_tiny": 28_589_128,
    "vit_b_16": 86_567_656,
}
WITHOUT_BUFFERS = ("alexnet", "convnext_tiny", "vit_b_16")


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
        assert record.head == [path for path, one in published.named_modules() if isinstance(one, nn.Linear)][-1]
        own = {
            key: value.shape for key, value in published.state_dict().items() if not key.startswith(f"{record.head}.")
        }
        assert {key: value.shape for key, value in extractor.state_dict().items()} == own
        assert count(extractor) + 1000 * (features + 1) == PARAMETERS[name]
        assert (not list(extractor.buffers())) == (name in WITHOUT_BUFFERS)
        with torch.device("meta"):
            model = ExtractorClassifier(extractor.eval(), nn.Linear(features, 7))
        assert model.features(torch.empty(2, 3, 224, 224, device="meta")).shape == (2, features)
        assert re.fullmatch(rf"{name}[\w-]*-[0-9a-f]{{8}}\.pth", imagenet_file_name(name) or "")


def test_alexnet_with_batchnorm_has_the_layers_of_the_published_one_and_a_norm_for_each_but_the_head() -> None:
    (plain, _), (normed, features) = on_meta("alexnet"), on_meta("alexnet", norm="batch")
    own = {key for key in normed.state_dict() if not key.startswith("norms.")}
    assert own == {*plain.state_dict()}
    layers = [one for one in normed.modules() if isinstance(one, nn.Conv2d | nn.Linear)]
    assert (
        len([one for one in normed.modules() if isinstance(one, nn.BatchNorm2d | nn.BatchNorm1d)]) == len(layers) == 7
    )
    assert normed(torch.empty(2, 3, 63, 63, device="meta")).shape == (2, features)
    assert imagenet_file_name("alexnet", "batch") == imagenet_file_name("alexnet")


def test_what_a_file_of_weights_lacks_by_the_networks_record_stays_as_it_was(tmp_path: Path) -> None:
    def build() -> nn.Module:
        return nn.ModuleDict({"layer": nn.Linear(4, 4), "norms": nn.BatchNorm1d(4), "head": nn.Linear(4, 2)})

    record = Network(name="tiny_normed", build=build, head="head", output="norms")
    made = record.extractor(2)[0]
    model = ExtractorClassifier(made, nn.Linear(4, 2))
    published = {f"{name}.{part}": torch.ones(shape) for name, rows in (("layer", 4), ("head", 1000))
                 for part, shape in (("weight", (rows, 4)), ("bias", (rows,)))}  # fmt: skip
    torch.save(published, tmp_path / "weights.pth")
    NETWORKS.add(record)
    try:
        load_pretrained(model, "tiny_normed", "auto", tmp_path / "weights.pth")
    finally:
        NETWORKS.remove("tiny_normed")
    assert bool((made.state_dict()["layer.weight"] == 1).all())
    assert made.state_dict()["norms.running_var"].tolist() == [1.0] * 4


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
