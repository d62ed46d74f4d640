# SPDX-License-Identifier: Apache-2.0
"""The networks of this package, one record each, and the registry of all networks by name."""

from fdg_plugins.models.network import Network
from fdg_plugins.plugins.registry import Registry

CONVNET = Network(name="convnet", build="fdg_plugins.models.convnet:convnet_extractor", features=128, small=True)
GROUPNORM_CONVNET = Network(
    name="groupnorm_convnet",
    build="fdg_plugins.models.convnet:groupnorm_extractor",
    features=128,
    channels=1,
    small=True,
)
RESNET18 = Network(name="resnet18", build="fdg_plugins.models.resnet:resnet18", head="fc")
RESNET50 = Network(name="resnet50", build="fdg_plugins.models.resnet:resnet50", head="fc")

_MONAI = "fdg_plugins.models.monai_networks"


def _unet(name: str, output: str, small: bool = False) -> Network:
    """Return the record of one of MONAI's U-Nets, whose last module is ``output``."""
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
    name="monai_densenet121", build=f"{_MONAI}:monai_densenet121", head="class_layers.out", channels=None
)

NETWORKS: Registry[Network] = Registry("model", "fdg_plugins.networks", [__name__], Network)
"""All networks by name: those above and those of plug-ins."""
