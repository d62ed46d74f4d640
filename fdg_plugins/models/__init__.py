# SPDX-License-Identifier: Apache-2.0
"""Models by name, each an extractor of features with a linear classifier on top.

    >>> from fdg_plugins.models import build_model, model_names, parameter_kinds
    >>> model_names()
    ('convnet', 'resnet18', 'resnet50')
    >>> model = build_model("convnet", num_classes=7, seed=1)
    >>> model.feature_size
    128
    >>> parameter_kinds(model)["classifier.weight"]
    <ParameterKind.TRAINABLE: 'trainable'>

Networks are built with random parameters; ``load_pretrained`` puts ImageNet weights into the extractor
from a file on this machine, and nothing is ever downloaded.
"""

from fdg_plugins.models.pretrained import PretrainedRecord, load_pretrained
from fdg_plugins.models.registry import (
    ExtractorClassifier,
    build_model,
    check_model_name,
    model_names,
    parameter_kinds,
)

__all__ = [
    "ExtractorClassifier",
    "PretrainedRecord",
    "build_model",
    "check_model_name",
    "load_pretrained",
    "model_names",
    "parameter_kinds",
]
