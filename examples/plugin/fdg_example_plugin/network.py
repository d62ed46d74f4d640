# SPDX-License-Identifier: Apache-2.0
"""A small network: patches of 4 x 4 pixels, mixed by convolutions; its head is the layer ``head``."""

from collections import OrderedDict

from torch import nn


def patchnet(num_classes: int) -> nn.Module:
    """Return the network, images ``[B, 3, H, W]`` of 8 pixels or more to logits ``[B, num_classes]``."""
    return nn.Sequential(
        OrderedDict(
            patches=nn.Conv2d(3, 16, kernel_size=4, stride=4),
            act=nn.GELU(),
            mix=nn.Conv2d(16, 16, kernel_size=3, padding=1),
            norm=nn.GroupNorm(4, 16),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            head=nn.Linear(16, num_classes),
        )
    )
