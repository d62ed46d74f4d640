# SPDX-License-Identifier: Apache-2.0
"""Models by name, each a feature extractor with a classifier on top.

    >>> from fdg_plugins.models import NETWORKS, build_model
    >>> sorted(NETWORKS.names())  # doctest: +ELLIPSIS
    ['alexnet', 'cnn', 'convnet', 'convnext_tiny', 'efficientnet_b0', ..., 'strided_convnet', 'vit_b_16']
    >>> model = build_model("convnet", num_classes=7, seed=1)
    >>> model.feature_size
    128
    >>> from fdg_plugins.models.registry import HEADS, parameter_kinds
    >>> parameter_kinds(model)["classifier.weight"]
    <ParameterKind.TRAINABLE: 'trainable'>

The head, as the protocol calls the classifier, is one linear layer by default:

    >>> HEADS
    ('linear', 'projected_two_layer', 'two_layer')
    >>> build_model("groupnorm_convnet", num_classes=10, seed=1, head="two_layer").last_layer_names
    ('classifier.2.weight', 'classifier.2.bias')

A custom network is a record in an installed plug-in or in a plug-in file; ``Network`` documents its fields:

    >>> NETWORKS.get("resnet18").head
    'fc'

Networks are built with random parameters. ``load_pretrained`` loads ImageNet weights into the extractor from a local
file; nothing is ever downloaded.
"""

from fdg_plugins.models.network import Network, network_of
from fdg_plugins.models.networks import NETWORKS
from fdg_plugins.models.pretrained import InitialWeights
from fdg_plugins.models.registry import ExtractorClassifier, build_model

__all__ = [
    "NETWORKS",
    "ExtractorClassifier",
    "InitialWeights",
    "Network",
    "build_model",
    "network_of",
]
