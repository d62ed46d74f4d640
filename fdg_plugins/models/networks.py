# SPDX-License-Identifier: Apache-2.0
"""The networks of this package, one record each, and the registry of all networks by name."""

from fdg_plugins.models.network import Network
from fdg_plugins.plugins.registry import Registry

CONVNET = Network(
    name="convnet",
    build="fdg_plugins.models.convnet:convnet_extractor",
    features=128,
    norms=("batch", "group"),
    small=True,
)
STRIDED_CONVNET = Network(
    name="strided_convnet",
    build="fdg_plugins.models.convnet:strided_convnet_extractor",
    features=128,
    smallest=32,
    norms=("batch", "group"),
    small=True,
)
GROUPNORM_CONVNET = Network(
    name="groupnorm_convnet",
    build="fdg_plugins.models.convnet:groupnorm_extractor",
    features=128,
    channels=1,
    small=True,
)

CNN = Network(name="cnn", build="fdg_plugins.models.convnet:cnn_extractor", features=512, channels=None, smallest=16)

_TORCHVISION = "fdg_plugins.models.torchvision_networks"


def _resnet(name: str) -> Network:
    return Network(name=name, build=f"{_TORCHVISION}:{name}", head="fc", norms=("batch", "group"))


RESNET18 = _resnet("resnet18")
RESNET34 = _resnet("resnet34")
RESNET50 = _resnet("resnet50")
ALEXNET = Network(
    name="alexnet",
    build=f"{_TORCHVISION}:alexnet",
    head="classifier.6",
    output="norms",
    norms=("batch",),
    smallest=63,
)
MOBILENET_V3_LARGE = Network(name="mobilenet_v3_large", build=f"{_TORCHVISION}:mobilenet_v3_large", head="classifier.3")
MOBILENET_V3_SMALL = Network(name="mobilenet_v3_small", build=f"{_TORCHVISION}:mobilenet_v3_small", head="classifier.3")
EFFICIENTNET_B0 = Network(name="efficientnet_b0", build=f"{_TORCHVISION}:efficientnet_b0", head="classifier.1")
EFFICIENTNET_LITE0 = Network(
    name="efficientnet_lite0", build="fdg_plugins.models.efficientnet_lite:EfficientNetLite0", head="fc", smallest=32
)
CONVNEXT_TINY = Network(name="convnext_tiny", build=f"{_TORCHVISION}:convnext_tiny", head="classifier.2", smallest=32)
VIT_B_16 = Network(name="vit_b_16", build=f"{_TORCHVISION}:vit_b_16", head="heads.head", multiple=16)

_MONAI = "fdg_plugins.models.monai_networks"


def _unet(name: str, output: str, small: bool = False) -> Network:
    return Network(
        name=name,
        build=f"{_MONAI}:{name}",
        features=16,
        channels=None,
        dense=True,
        multiple=16,
        small=small,
        output=output,
    )


MONAI_UNET = _unet("monai_unet", "network.model.2", small=True)
MONAI_BASIC_UNET = _unet("monai_basic_unet", "network.final_conv")
MONAI_DYNUNET = _unet("monai_dynunet", "network.output_block")
MONAI_DENSENET121 = Network(
    name="monai_densenet121", build=f"{_MONAI}:monai_densenet121", head="class_layers.out", channels=None, smallest=29
)

NETWORKS: Registry[Network] = Registry("model", "fdg_plugins.networks", [__name__], Network)
"""All networks by name: those above and those of plug-ins."""
