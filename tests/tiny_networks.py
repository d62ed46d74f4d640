# SPDX-License-Identifier: Apache-2.0
"""torchvision's architectures with a few layers, as a plug-in's factories: of each kind that has a name."""

from collections.abc import Callable, Mapping
from functools import partial

from torch import nn
from torchvision import models
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.efficientnet import MBConvConfig
from torchvision.models.mobilenetv3 import InvertedResidualConfig
from torchvision.models.resnet import BasicBlock, Bottleneck


def tiny_resnet() -> nn.Module:
    return models.ResNet(BasicBlock, [1, 1, 1, 1], norm_layer=partial(nn.GroupNorm, 32))


def tiny_bottleneck() -> nn.Module:
    return models.ResNet(Bottleneck, [1, 1, 1, 1], width_per_group=16, norm_layer=partial(nn.GroupNorm, 8))


def tiny_mobilenet() -> nn.Module:
    return models.MobileNetV3([InvertedResidualConfig(16, 3, 16, 16, True, "HS", 2, 1, 1.0)], last_channel=32)


def tiny_efficientnet() -> nn.Module:
    return models.EfficientNet([MBConvConfig(1, 3, 1, 8, 8, 2, 1.0, 1.0)], dropout=0.2, last_channel=16)


def tiny_convnext() -> nn.Module:
    return models.ConvNeXt([CNBlockConfig(8, 16, 2), CNBlockConfig(16, None, 1)], stochastic_depth_prob=0.5)


def tiny_vit(image_size: int) -> nn.Module:
    return models.VisionTransformer(image_size, 8, 1, 2, 16, 32, dropout=0.1)


# By the names of their records; those whose features are not the output of a global average pooling refuse RSC.
TINY: Mapping[str, Callable[..., nn.Module]] = {
    build.__name__: build
    for build in (tiny_resnet, tiny_bottleneck, tiny_mobilenet, tiny_efficientnet, tiny_convnext, tiny_vit)
}
POOLED = ("tiny_resnet", "tiny_bottleneck", "tiny_efficientnet")
