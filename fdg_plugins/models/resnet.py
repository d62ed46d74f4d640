# SPDX-License-Identifier: Apache-2.0
"""torchvision's residual networks as extractors, and the names of their published ImageNet weights."""

from pathlib import PurePosixPath
from urllib.parse import urlparse

from torch import nn

# torchvision is imported by what builds one of its networks: it takes longer than this whole package.
_NAMES = ("resnet18", "resnet50")


def resnet_extractor(name: str) -> tuple[nn.Module, int]:
    """Return the randomly initialised network without its last layer, ``[B, 3, H, W]`` -> ``[B, D]``, and ``D``."""
    from torchvision.models import resnet18, resnet50

    network = {"resnet18": resnet18, "resnet50": resnet50}[name](weights=None)
    feature_size = network.fc.in_features
    network.fc = nn.Identity()
    return network, feature_size


def imagenet_file_name(name: str) -> str | None:
    """Return the file name of torchvision's ImageNet weights (first version) of a model, None if it has none."""
    if name not in _NAMES:
        return None
    from torchvision.models import ResNet18_Weights, ResNet50_Weights

    # Of the weights only the address is ever looked at, and of that only the file name.
    weights = {"resnet18": ResNet18_Weights.IMAGENET1K_V1, "resnet50": ResNet50_Weights.IMAGENET1K_V1}[name]
    return PurePosixPath(urlparse(weights.url).path).name
