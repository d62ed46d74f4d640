# SPDX-License-Identifier: Apache-2.0
"""Models by name: an extractor of features and a linear classifier on top, the same bits for the same seed."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from fdg_plugins.core.layout import ParameterKind
from fdg_plugins.errors import SettingsError
from fdg_plugins.models.convnet import convnet_extractor
from fdg_plugins.models.resnet import resnet_extractor
from fdg_plugins.randomness import seeded

_EXTRACTORS: dict[str, Callable[[], tuple[nn.Module, int]]] = {
    "convnet": convnet_extractor,
    "resnet18": partial(resnet_extractor, "resnet18"),
    "resnet50": partial(resnet_extractor, "resnet50"),
}


class ExtractorClassifier(nn.Module):
    """Images ``[B, 3, H, W]`` -> extractor -> features ``[B, D]`` -> linear classifier -> logits ``[B, Y]``."""

    def __init__(self, extractor: nn.Module, classifier: nn.Linear) -> None:
        super().__init__()
        self.extractor = extractor
        self.classifier = classifier

    @property
    def feature_size(self) -> int:
        """``D``, the length of a feature vector."""
        return self.classifier.in_features

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features ``[B, D]`` of ``images: [B, 3, H, W]``."""
        return self.extractor(images)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, Y]`` of ``images: [B, 3, H, W]``."""
        return self.classifier(self.features(images))


def model_names() -> tuple[str, ...]:
    """Return the names that ``build_model`` knows, sorted."""
    return tuple(sorted(_EXTRACTORS))


def check_model_name(name: str) -> None:
    """Refuse a name that ``build_model`` does not know, with a SettingsError that lists those it does."""
    if name not in _EXTRACTORS:
        raise SettingsError(f"model {name!r} is unknown; expected one of: {', '.join(model_names())}.")


def build_model(name: str, num_classes: int, *, seed: int) -> ExtractorClassifier:
    """Return the model on the CPU, randomly initialised by ``seed`` alone; global generators are left as they were.

    The extractor's initial parameters do not depend on ``num_classes``. Raises SettingsError for an
    unknown name and for less than one class.
    """
    check_model_name(name)
    if num_classes < 1:
        raise SettingsError(f"num_classes is {num_classes} for model {name}; expected at least 1.")
    with seeded(seed, "model", name, "extractor"):
        extractor, feature_size = _EXTRACTORS[name]()
    with seeded(seed, "model", name, "classifier"):
        classifier = nn.Linear(feature_size, num_classes)
    return ExtractorClassifier(extractor, classifier)


def parameter_kinds(model: nn.Module) -> dict[str, ParameterKind]:
    """Return the kind of every entry of ``model.state_dict()``, in its order.

    ``trainable`` are all parameters, also those a method has frozen; ``float_buffer`` e.g. running means;
    ``integer_buffer`` everything else, e.g. batch counters and boolean masks.
    """
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {name: _kind(name in parameters, value) for name, value in model.state_dict().items()}


def _kind(is_parameter: bool, value: torch.Tensor) -> ParameterKind:
    if is_parameter:
        return ParameterKind.TRAINABLE
    return ParameterKind.FLOAT_BUFFER if value.is_floating_point() else ParameterKind.INTEGER_BUFFER
