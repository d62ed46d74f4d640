# SPDX-License-Identifier: Apache-2.0
"""Models by name, each an extractor of features with a classifier on top.

    >>> from fdg_plugins.models import build_model, model_names, parameter_kinds
    >>> model_names()
    ('convnet', 'groupnorm_convnet', 'resnet18', 'resnet50')
    >>> model = build_model("convnet", num_classes=7, seed=1)
    >>> model.feature_size
    128
    >>> parameter_kinds(model)["classifier.weight"]
    <ParameterKind.TRAINABLE: 'trainable'>

The head, as a classifier is called where one is chosen, is one linear layer unless told otherwise:

    >>> from fdg_plugins.models import HEADS, input_channels
    >>> HEADS
    ('linear', 'two_layer')
    >>> build_model("groupnorm_convnet", num_classes=10, seed=1, head="two_layer").last_weight_name
    'classifier.2.weight'
    >>> input_channels("groupnorm_convnet")
    1

A network of one's own is a record, of an installed plug-in or a file at hand; ``Network`` says what it holds:

    >>> from fdg_plugins.models import NETWORKS
    >>> NETWORKS.get("resnet18").head
    'fc'

Networks are built with random parameters; ``load_pretrained`` puts ImageNet weights into the extractor
from a file on this machine, and nothing is ever downloaded.
"""

from fdg_plugins.models.network import Network
from fdg_plugins.models.networks import NETWORKS
from fdg_plugins.models.pretrained import PretrainedRecord, load_pretrained
from fdg_plugins.models.registry import (
    HEADS,
    ExtractorClassifier,
    build_model,
    check_features,
    check_head,
    check_model_name,
    input_channels,
    is_small_model,
    model_names,
    parameter_kinds,
)

__all__ = [
    "HEADS",
    "NETWORKS",
    "ExtractorClassifier",
    "Network",
    "PretrainedRecord",
    "build_model",
    "check_features",
    "check_head",
    "check_model_name",
    "input_channels",
    "is_small_model",
    "load_pretrained",
    "model_names",
    "parameter_kinds",
]
