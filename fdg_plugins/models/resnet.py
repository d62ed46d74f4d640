# SPDX-License-Identifier: Apache-2.0
"""torchvision's residual networks, and the names of their published ImageNet weights."""

from pathlib import PurePosixPath
from urllib.parse import urlparse

from torch import nn

# torchvision is imported on demand, when a network is built: importing it takes longer than importing this package.
_NAMES = ("resnet18", "resnet50")


def resnet18() -> nn.Module:
    """Return the randomly initialised network, ``[B, 3, H, W]`` -> ``[B, 1000]``, whose last layer is ``fc``."""
    from torchvision import models

    return models.resnet18(weights=None)


def resnet50() -> nn.Module:
    """Return the randomly initialised network, ``[B, 3, H, W]`` -> ``[B, 1000]``, whose last layer is ``fc``."""
    from torchvision import models

    return models.resnet50(weights=None)


def imagenet_file_name(name: str) -> str | None:
    """Return the file name of torchvision's ImageNet weights (first version) of a model, None if there are none."""
    if name not in _NAMES:
        return None
    from torchvision.models import ResNet18_Weights, ResNet50_Weights

    # Only the file name in the address of the weights is used.
    weights = {"resnet18": ResNet18_Weights.IMAGENET1K_V1, "resnet50": ResNet50_Weights.IMAGENET1K_V1}[name]
    return PurePosixPath(urlparse(weights.url).path).name
