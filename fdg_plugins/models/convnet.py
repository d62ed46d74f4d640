# SPDX-License-Identifier: Apache-2.0
"""Small convolutional extractors: two for tests and for trials on a CPU, in colour, and two from the literature."""

from itertools import pairwise

from torch import nn

_CHANNELS = (3, 32, 64, 128, 128)
_GREY_CHANNELS = (1, 64, 128, 128, 128)
_GROUPS = 8
_KERNEL = 5
_HIDDEN = 512


def convnet(norm: str = "default") -> nn.Module:
    """Return the extractor from images ``[B, 3, H, W]``, H and W at least 16, to features ``[B, 128]``.

    It has about 0.24 million parameters: four blocks of 3x3 convolution, batch normalisation and ReLU. The first three
    halve height and width; the last does not, to leave batch normalisation 2x2 positions for images of 16 pixels.
    ``norm``: ``"group"`` for group normalisation in 8 groups instead, with as many parameters and no buffers.
    """
    return _blocks(norm, nn.Conv2d(_CHANNELS[0], _CHANNELS[1], 3, padding=1, bias=False))


def strided_convnet(norm: str = "default") -> nn.Module:
    """Return the extractor of ``convnet`` for larger images, H and W at least 32, with a tenth of the work.

    Its first convolution, 5x5, takes every fourth position, as the stem of a residual network leaves them; images of
    64 pixels leave 2x2 positions for the last block, those of 32 pixels one.
    """
    return _blocks(norm, nn.Conv2d(_CHANNELS[0], _CHANNELS[1], 5, stride=4, padding=2, bias=False))


def _blocks(norm: str, first: nn.Module) -> nn.Module:
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(pairwise(_CHANNELS)):
        normalised = nn.GroupNorm(_GROUPS, outputs) if norm == "group" else nn.BatchNorm2d(outputs)
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False) if number else first
        layers += [convolution, normalised, nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if outputs != inputs else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def groupnorm_convnet() -> nn.Module:
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


def cnn(channels: int, image_size: int) -> nn.Module:
    """Return the extractor from images ``[B, C, S, S]``, S at least 16, to features ``[B, 512]``.

    This is FedOMG's network for federations of label-skewed sites (D.4): convolutions of 32 and 64 channels, each with
    ReLU and a max pooling that halves height and width, then a linear layer of 512 units with ReLU. The paper does not
    state the size of the kernels; it is 5, without padding, as in McMahan et al. (AISTATS 2017). With 10 classes it has
    0.58 million parameters for grey images of 28 pixels and 0.88 million for colour images of 32. There are no buffers.
    """
    side = ((image_size - _KERNEL + 1) // 2 - _KERNEL + 1) // 2
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, _KERNEL), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, _KERNEL), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * side * side, _HIDDEN), nn.ReLU()),
    )
