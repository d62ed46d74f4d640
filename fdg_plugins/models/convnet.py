# SPDX-License-Identifier: Apache-2.0
"""A small convolutional extractor for tests, demonstrations and stand-in data: about 0.24 million parameters."""

from itertools import pairwise

from torch import nn

_CHANNELS = (3, 32, 64, 128, 128)


def convnet_extractor() -> tuple[nn.Module, int]:
    """Return the extractor, images ``[B, 3, H, W]`` of 16 pixels or more to features ``[B, D]``, and ``D``.

    Four blocks of 3x3 convolution, batch normalisation and ReLU. The first three halve height and
    width; the last does not, so that 16 pixels still leave batch normalisation 2x2 positions.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(_CHANNELS):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if outputs != inputs else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), _CHANNELS[-1]
