# SPDX-License-Identifier: Apache-2.0
"""A network without BatchNorm: it has no running statistics, so every entry of its state dict is a parameter.

BatchNorm's statistics differ most between domains, and averaging them mixes what the sites have measured.
"""

from torch import nn

WIDTHS = (32, 64, 128)


def norm_free(num_classes: int, channels: int = 3) -> nn.Module:
    """Return a network from images ``[B, channels, H, W]`` to logits ``[B, num_classes]``; sides of 16 pixels at least.

    Each block halves the sides. Group normalization takes the mean and variance of one image.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in zip((channels, *WIDTHS[:-1]), WIDTHS, strict=True):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.GroupNorm(8, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], num_classes))
