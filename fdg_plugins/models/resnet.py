# SPDX-License-Identifier: Apache-2.0
"""torchvision's residual networks as extractors, and the names of their published ImageNet weights."""

from pathlib import PurePosixPath
from urllib.parse import urlparse

from torch import nn
from torchvision.models import ResNet18_Weights, ResNet50_Weights, resnet18, resnet50

# By model name. Of the weights only the address is ever looked at, and of that only the file name.
_BUILDERS = {"resnet18": resnet18, "resnet50": resnet50}
_WEIGHTS = {"resnet18": ResNet18_Weights.IMAGENET1K_V1, "resnet50": ResNet50_Weights.IMAGENET1K_V1}


def resnet_extractor(name: str) -> tuple[nn.Module, int]:
    """Return the randomly initialised network without its last layer, ``[B, 3, H, W]`` -> ``[B, D]``, and ``D``."""
    network = _BUILDERS[name](weights=None)
    feature_size = network.fc.in_features
    network.fc = nn.Identity()
    return network, feature_size


def imagenet_file_name(name: str) -> str | None:
    """Return the file name of torchvision's ImageNet weights (first version) of a model, None if it has none."""
    return PurePosixPath(urlparse(_WEIGHTS[name].url).path).name if name in _WEIGHTS else None
