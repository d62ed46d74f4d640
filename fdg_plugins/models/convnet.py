# SPDX-License-Identifier: Apache-2.0
"""Small convolutional extractors: one for tests and demonstrations in colour, one from the literature for digits."""

from itertools import pairwise

from torch import nn

_CHANNELS = (3, 32, 64, 128, 128)
_GREY_CHANNELS = (1, 64, 128, 128, 128)
_GROUPS = 8


def convnet_extractor() -> nn.Module:
    """Return the extractor from images ``[B, 3, H, W]``, H and W at least 16, to features ``[B, 128]``.

    It has about 0.24 million parameters: four blocks of 3x3 convolution, batch normalisation and ReLU. The first three
    halve height and width; the last does not, to leave batch normalisation 2x2 positions for images of 16 pixels.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(_CHANNELS):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if outputs != inputs else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def groupnorm_extractor() -> nn.Module:
    """Return the extractor from grey images ``[B, 1, H, W]`` of any size to features ``[B, 128]``.

    This is the network of DomainBed (``MNIST_CNN``) and FedIIR for RotatedMNIST, with about 0.37 million parameters:
    four 3x3 convolutions, each followed by ReLU and group normalisation in 8 groups; the second halves height and
    width. Group normalisation has no running statistics, so there are no buffers.
    """
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(pairwise(_GREY_CHANNELS)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2 if number == 1 else 1, padding=1), nn.ReLU()]
        layers += [nn.GroupNorm(_GROUPS, outputs)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
