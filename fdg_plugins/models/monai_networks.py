# SPDX-License-Identifier: Apache-2.0
"""MONAI's networks for images and volumes: U-Nets with features of every pixel, and a DenseNet to classify images.

Shapes: images ``[B, C, H, W]``, or volumes ``[B, C, H, W, Z]``, whose sides are multiples of 16; features ``[B, D]``
or, for the U-Nets, ``[B, H, W, D]`` with D = 16. MONAI (the extra ``medical``) is imported when a network is built.

>>> path, settings = monai_definition("monai_unet", channels=3, dims=2, norm="batch")
>>> path, settings["channels"], settings["norm"]
('monai.networks.nets.UNet', (16, 32, 64, 128), 'batch')
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from fdg_plugins.errors import SettingsError, load_extra
from fdg_plugins.models.network import IMAGE_SIZE

MODULE = "monai.networks.nets"
FEATURES = 16
_LEVELS = 4
_NORMS: Mapping[str, Any] = {
    "batch": "batch",
    "instance": ("instance", {"affine": True}),
    "group": ("group", {"num_groups": 8}),
}
_DEFINITIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "monai_unet": (
        "UNet",
        {"out_channels": FEATURES, "channels": (16, 32, 64, 128), "strides": (2, 2, 2), "num_res_units": 2},
    ),
    "monai_basic_unet": ("BasicUNet", {"out_channels": FEATURES}),
    "monai_dynunet": (
        "DynUNet",
        {
            "out_channels": FEATURES,
            "kernel_size": (3,) * _LEVELS,
            "strides": (1, *(2,) * (_LEVELS - 1)),
            "upsample_kernel_size": (2,) * (_LEVELS - 1),
            "filters": (32, 64, 128, 256),
        },
    ),
    # Its head, which is replaced, has one output, so that the other parameters do not depend on the classes.
    "monai_densenet121": ("DenseNet121", {"out_channels": 1}),
}


DEFINED = tuple(_DEFINITIONS)
_SMALLEST_WITH_INSTANCE = {"monai_basic_unet": 32, "monai_densenet121": 61}  # below, the smallest map has one position


class DenseNetwork(nn.Module):
    """A network from images ``[B, C, *S]`` to features ``[B, *S, D]``, which ``network`` returns channels first."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.network(images)
        return features.movedim(1, -1)


def monai_definition(name: str, *, channels: int, dims: int, norm: str) -> tuple[str, dict[str, Any]]:
    """Return the class path of a network of this module in MONAI, and the keyword arguments that build it.

    ``norm``: ``"batch"``, ``"instance"``, ``"group"`` (8 groups), or ``"default"`` for that of the class: instance
    normalization in the U-Nets, batch normalization in the DenseNet.
    """
    kind, settings = _DEFINITIONS[name]
    chosen = {} if norm == "default" else {"norm_name" if kind == "DynUNet" else "norm": _NORMS[norm]}
    return f"{MODULE}.{kind}", {"spatial_dims": dims, "in_channels": channels, **settings, **chosen}


def monai_unet(channels: int, dims: int, norm: str) -> nn.Module:
    """Return a residual U-Net of four levels with 16, 32, 64 and 128 channels: 0.41 million parameters in 2-D."""
    return DenseNetwork(_built("monai_unet", channels, dims, norm))


def monai_basic_unet(channels: int, dims: int, norm: str, image_size: int = IMAGE_SIZE) -> nn.Module:
    """Return a U-Net of five levels with 32 to 256 channels and, by default, instance normalization: 2.0 million."""
    _check_positions("monai_basic_unet", "instance" if norm == "default" else norm, image_size)
    return DenseNetwork(_built("monai_basic_unet", channels, dims, norm))


def monai_dynunet(channels: int, dims: int, norm: str) -> nn.Module:
    """Return nnU-Net's network with four levels of 32, 64, 128 and 256 channels, without deep supervision."""
    network = _built("monai_dynunet", channels, dims, norm)
    # MONAI registers every block a second time, in the nest that it runs. The nest is kept out of the modules:
    # otherwise each parameter would have two entries in the state dict, travel twice and count twice.
    network.__dict__["skip_layers"] = network._modules.pop("skip_layers")
    return DenseNetwork(network)


def monai_densenet121(channels: int, dims: int, norm: str, image_size: int = IMAGE_SIZE) -> nn.Module:
    """Return the DenseNet-121 with a head, ``class_layers.out``, that is to be replaced: 7.0 million parameters."""
    _check_positions("monai_densenet121", norm, image_size)
    return _built("monai_densenet121", channels, dims, norm)


def _check_positions(name: str, norm: str, image_size: int) -> None:
    if norm == "instance" and image_size < (smallest := _SMALLEST_WITH_INSTANCE[name]):
        expected = f"at least {smallest} for model {name!r}, as instance normalization cannot train on one position"
        raise SettingsError(field="image_size", value=image_size, expected=expected, public=True)


def _built(name: str, channels: int, dims: int, norm: str) -> nn.Module:
    path, settings = monai_definition(name, channels=channels, dims=dims, norm=norm)
    network: nn.Module = getattr(load_extra(MODULE, f"model {name!r}"), path.rpartition(".")[2])(**settings)
    return network
