# SPDX-License-Identifier: Apache-2.0
"""torchvision's networks, ``[B, 3, H, W]`` -> ``[B, 1000]``, and the names of their published ImageNet weights.

All have random parameters. The head, which is replaced, keeps its 1000 outputs, so that no other parameter depends on
the classes.
"""

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from math import isqrt
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlparse

import torch
from torch import nn

_IMAGENET = (
    *("alexnet", "resnet18", "resnet34", "resnet50", "mobilenet_v3_large", "mobilenet_v3_small"),
    *("efficientnet_b0", "convnext_tiny", "vit_b_16"),
)
_GROUPS = 32
_NORMALIZED = (nn.Conv2d, nn.Linear)
_POSITIONS = "encoder.pos_embedding"

PATCH = 16
"""Side of the transformer's patches, in pixels."""


def vit_b_16(image_size: int) -> nn.Module:
    """Return the vision transformer ViT-B/16 for images of ``image_size`` pixels per side, a multiple of 16.

    It has 86.6 million parameters at 224 pixels, and layer normalization.
    """
    return _built("vit_b_16", image_size=image_size)


class NormalizedAlexNet(nn.Module):
    """torchvision's AlexNet with BatchNorm behind every layer but the head, and without dropout.

    It is the network of FedBN (Li, Jiang, Zhang, Kamp, Dou, ICLR 2021), which FedDG-GA uses for DomainNet. Convolutions
    and linear layers have torchvision's names, the added layers are ``norms``.
    """

    def __init__(self) -> None:
        super().__init__()
        parts = dict(_built("alexnet", dropout=0.0).named_children())
        self.features, self.classifier = (nn.Sequential(*parts[name].children()) for name in ("features", "classifier"))
        self.avgpool = parts["avgpool"]
        layers = [layer for layer in (*self.features, *self.classifier[:-1]) if isinstance(layer, _NORMALIZED)]
        self.norms = nn.ModuleList(
            nn.BatchNorm2d(layer.out_channels) if isinstance(layer, nn.Conv2d) else nn.BatchNorm1d(layer.out_features)
            for layer in layers
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        values, norms = images, iter(self.norms)
        for layer in (*self.features, self.avgpool, nn.Flatten(1), *self.classifier[:-1]):
            values = layer(values)
            values = next(norms)(values) if isinstance(layer, _NORMALIZED) else values
        result: torch.Tensor = self.classifier[-1](values)
        return result


def alexnet(norm: str = "default") -> nn.Module:
    """Return AlexNet, 61.1 million parameters; ``batch`` normalizes each layer."""
    return NormalizedAlexNet() if norm == "batch" else _built("alexnet")


def imagenet_file_name(name: str, norm: str = "default") -> str | None:
    """Return the file name of torchvision's ImageNet weights (first version) of a model, None if there are none.

    ``norm``: the model's kind of normalization; there are weights for batch normalization only. AlexNet's are of the
    network without, whose function the layers of BatchNorm do not change before training.
    """
    if name not in _IMAGENET or norm not in ("default", "batch"):
        return None
    from torchvision import models

    # Only the file name in the address of the weights is used.
    return PurePosixPath(urlparse(models.get_model_weights(name)["IMAGENET1K_V1"].url).path).name


def resize_positions(
    tensors: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return ``tensors`` with the transformer's position embeddings interpolated to the grid of ``expected``.

    They have the shape ``[1, 1 + side * side, D]``; the embedding of the class token, the first, is kept. Tensors
    without such embeddings, or with those of another form, are returned unchanged.
    """
    found, wanted = tensors.get(_POSITIONS), expected.get(_POSITIONS)
    if found is None or wanted is None:
        return dict(tensors)
    from torchvision.models.vision_transformer import interpolate_embeddings

    image_size = isqrt(wanted.shape[1] - 1) * PATCH
    with suppress(ValueError, RuntimeError):  # of embeddings without such a grid
        return dict(interpolate_embeddings(image_size, PATCH, OrderedDict(tensors)))
    return dict(tensors)


def _built(name: str, **settings: Any) -> nn.Module:
    from torchvision import models  # on demand: importing it takes longer than importing this package

    network: nn.Module = models.get_model(name, weights=None, **settings)
    return network


def _resnet(name: str, norm: str = "default") -> nn.Module:
    return _built(name, norm_layer=partial(nn.GroupNorm, _GROUPS) if norm == "group" else None)


# Factories, named by the records of the networks; with millions of parameters.
resnet18 = partial(_resnet, "resnet18")  # 11.7
resnet34 = partial(_resnet, "resnet34")  # 21.8
resnet50 = partial(_resnet, "resnet50")  # 25.6
mobilenet_v3_large = partial(_built, "mobilenet_v3_large")  # 5.5
mobilenet_v3_small = partial(_built, "mobilenet_v3_small")  # 2.5
efficientnet_b0 = partial(_built, "efficientnet_b0")  # 5.3
convnext_tiny = partial(_built, "convnext_tiny")  # 28.6, with layer normalization
