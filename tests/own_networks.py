# SPDX-License-Identifier: Apache-2.0
"""The text of a user's module with factories of networks: one that fits, one of a fixed size, one that is none."""

NETWORKS = """
from torch import nn


class Pair(nn.Sequential):
    def forward(self, images):
        return super().forward(images), images


def small(num_classes: int, channels: int = 3) -> nn.Module:
    body = [nn.Conv2d(channels, 4, 4, stride=4), nn.AdaptiveAvgPool2d(4), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(64, num_classes))


def pair(num_classes: int, channels: int = 3) -> nn.Module:
    return Pair(nn.Flatten(), nn.Linear(channels * 32 * 32, num_classes))


def fixed(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, num_classes))
"""
