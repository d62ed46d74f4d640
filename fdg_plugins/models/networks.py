# SPDX-License-Identifier: Apache-2.0
"""The networks of this package, one record each, and the registry of all networks by name."""

from typing import Any

from fdg_plugins.models.network import Network
from fdg_plugins.plugins.registry import Registry


def _built_in(module: str, name: str, **fields: Any) -> Network:
    """Return the record of a network that the function of its name in ``module`` builds."""
    return Network(name=name, build=f"fdg_plugins.models.{module}:{name}", **fields)


_BATCH_OR_GROUP = ("batch", "group")
CONVNET = _built_in("convnet", "convnet", features=128, norms=_BATCH_OR_GROUP, small=True)
STRIDED_CONVNET = _built_in("convnet", "strided_convnet", features=128, smallest=32, norms=_BATCH_OR_GROUP, small=True)
GROUPNORM_CONVNET = _built_in("convnet", "groupnorm_convnet", features=128, channels=1, small=True)
CNN = _built_in("convnet", "cnn", features=512, channels=None, smallest=16)

_TORCHVISION = "torchvision_networks"
RESNET18 = _built_in(_TORCHVISION, "resnet18", head="fc", norms=_BATCH_OR_GROUP)
RESNET34 = _built_in(_TORCHVISION, "resnet34", head="fc", norms=_BATCH_OR_GROUP)
RESNET50 = _built_in(_TORCHVISION, "resnet50", head="fc", norms=_BATCH_OR_GROUP)
ALEXNET = _built_in(_TORCHVISION, "alexnet", head="classifier.6", output="norms", norms=("batch",), smallest=63)
MOBILENET_V3_LARGE = _built_in(_TORCHVISION, "mobilenet_v3_large", head="classifier.3")
MOBILENET_V3_SMALL = _built_in(_TORCHVISION, "mobilenet_v3_small", head="classifier.3")
EFFICIENTNET_B0 = _built_in(_TORCHVISION, "efficientnet_b0", head="classifier.1")
EFFICIENTNET_LITE0 = Network(
    name="efficientnet_lite0", build="fdg_plugins.models.efficientnet_lite:EfficientNetLite0", head="fc", smallest=32
)
CONVNEXT_TINY = _built_in(_TORCHVISION, "convnext_tiny", head="classifier.2", smallest=32)
VIT_B_16 = _built_in(_TORCHVISION, "vit_b_16", head="heads.head", multiple=16)

_MONAI = "monai_networks"
_UNET = {"features": 16, "channels": None, "dense": True, "multiple": 16}
MONAI_UNET = _built_in(_MONAI, "monai_unet", output="network.model.2", small=True, **_UNET)
MONAI_BASIC_UNET = _built_in(_MONAI, "monai_basic_unet", output="network.final_conv", **_UNET)
MONAI_DYNUNET = _built_in(_MONAI, "monai_dynunet", output="network.output_block", **_UNET)
MONAI_DENSENET121 = _built_in(_MONAI, "monai_densenet121", head="class_layers.out", channels=None, smallest=29)

NETWORKS: Registry[Network] = Registry("model", "fdg_plugins.networks", [__name__], Network)
"""All networks by name: those above and those of plug-ins."""
