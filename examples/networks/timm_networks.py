# SPDX-License-Identifier: Apache-2.0
"""Networks of timm, which needs ``pip install 'fdg-plugins[timm]'``; ``pretrained=False`` downloads nothing."""

import timm
from torch import nn


def tiny_vit(num_classes: int, image_size: int) -> nn.Module:
    """Return a vision transformer for images of ``image_size`` pixels, a multiple of 16: 5.5 million parameters."""
    return timm.create_model(
        "vit_tiny_patch16_224", pretrained=False, num_classes=num_classes, img_size=image_size, drop_path_rate=0.1
    )


def small_mobilenet(num_classes: int) -> nn.Module:
    """Return a MobileNetV3 of half the width: 0.6 million parameters and 1,024 features."""
    return timm.create_model("mobilenetv3_small_050", pretrained=False, num_classes=num_classes)
