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

NETWORKS: Registry[Network] = Registry("model", "fdg_plugins.networks", [__name__], Network)
"""All networks by name: those above and those of plug-ins."""
