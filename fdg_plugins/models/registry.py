# SPDX-License-Identifier: Apache-2.0
"""Models by name: a feature extractor with a classifier on top; equal seeds give identical parameters."""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn, Self

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fdg_plugins.core.layout import ParameterKind
from fdg_plugins.errors import SettingsError, check_choice
from fdg_plugins.models.network import IMAGE_SIZE, evaluation_mode
from fdg_plugins.models.networks import NETWORKS
from fdg_plugins.plugins.registry import plugin_code
from fdg_plugins.randomness import seeded, torch_generator


class ExtractorClassifier(nn.Module):
    """Images ``[B, C, H, W]`` -> extractor -> features ``[B, D]`` -> classifier -> logits ``[B, Y]``.

    The classifier is one linear layer, or a sequence of layers that ends in one: the last layer. The input of the last
    layer is the penultimate output ``[B, D']``; for a linear classifier, these are the features.
    """

    def __init__(self, extractor: nn.Module, classifier: nn.Linear | nn.Sequential) -> None:
        super().__init__()
        self.extractor = extractor
        self.classifier = classifier
        self._compiled: Callable[[nn.Module, torch.Tensor], torch.Tensor] | None = None
        self._held: list[nn.Module] = []

    @property
    def feature_size(self) -> int:
        """``D``, the length of a feature vector."""
        return self._linear_layers()[0].in_features

    @property
    def last_layer(self) -> nn.Linear:
        """The linear layer that computes the logits."""
        return self._linear_layers()[-1]

    @property
    def last_layer_names(self) -> tuple[str, str]:
        """The names of the last layer's weight ``[Y, D']`` and bias ``[Y]`` in the state dict."""
        place = f"classifier.{len(self.classifier) - 1}" if isinstance(self.classifier, nn.Sequential) else "classifier"
        return f"{place}.weight", f"{place}.bias"

    @property
    def head_names(self) -> tuple[str, ...]:
        """The names of the classifier's entries in the state dict."""
        return tuple(f"classifier.{name}" for name in self.classifier.state_dict())

    def hold(self, names: Collection[str]) -> None:
        """Freeze entries of the state dict: no gradient, and modules with such buffers stay in evaluation mode."""
        for name, parameter in self.named_parameters():
            if name in names:
                parameter.requires_grad_(False)
        self._held += [module for prefix, module in self.named_modules() if _has_buffer(prefix, module, names)]

    def holds(self, module: nn.Module) -> bool:
        """Return whether :meth:`hold` left ``module`` in evaluation mode."""
        return any(module is held for held in self._held)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all modules except those that :meth:`hold` left in evaluation mode; return the model."""
        super().train(mode)
        for module in self._held:
            module.eval()
        return self

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features of ``images: [B, C, H, W]``: ``[B, D]``, or ``[B, H', W', D]`` for a dense network."""
        with nullcontext() if self.training else self._uncompiled():
            return (self._compiled or _extract)(self.extractor, images)

    def penultimate(self, images: torch.Tensor) -> torch.Tensor:
        """Return the last layer's input ``[B, D']``: ``last_layer(penultimate(images))`` are the logits."""
        return self.penultimate_of(self.features(images))

    def penultimate_of(self, features: torch.Tensor) -> torch.Tensor:
        """Return the last layer's input ``[B, D']`` for features ``[B, D]``."""
        return self.classifier[:-1](features) if isinstance(self.classifier, nn.Sequential) else features

    def feature_map(self, images: torch.Tensor) -> torch.Tensor:
        """Return the input of the extractor's global average pooling, ``[B, D, H', W']``, for ``images: [B, C, H, W]``.

        This takes one pass through the extractor without compiled code, which does not support hooks;
        ``pool(feature_map(images))`` equals the uncompiled features, bit for bit. Raises SettingsError if the extractor
        has no AdaptiveAvgPool2d.
        """
        return self._before_pooling(images, self.features)

    def _before_pooling(self, images: torch.Tensor, run: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        maps: list[torch.Tensor] = []
        with self._pooling().register_forward_pre_hook(lambda _, inputs: maps.append(inputs[0])), self._uncompiled():
            run(images)
        return maps[-1]

    def pool(self, maps: torch.Tensor) -> torch.Tensor:
        """Return the features ``[B, D]`` of feature maps ``[B, D, H', W']``."""
        return self._pooling()(maps).flatten(1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, Y]`` of ``images: [B, C, H, W]``."""
        return self.classifier(self.features(images))

    def compile_for_training(self, backend: str | Callable[..., Any]) -> None:
        """Compile the extractor with ``backend`` for passes in training mode; names and parameters are unchanged.

        Compilation happens in the first such pass, and again for another kind of batch; other passes run uncompiled.
        """
        # Not Module.compile: some versions of torch, such as 2.11, leave it without effect on torch's own modules.
        self._compiled = torch.compile(_extract, backend=backend)

    def _uncompiled(self) -> AbstractContextManager[object]:
        return torch.compiler.set_stance("force_eager") if self._compiled else nullcontext()

    def _pooling(self) -> nn.AdaptiveAvgPool2d:
        layers = [layer for layer in self.extractor.modules() if isinstance(layer, nn.AdaptiveAvgPool2d)]
        if not layers:
            _refuse("extractor has no AdaptiveAvgPool2d, whose output it takes")
        return layers[-1]

    def _linear_layers(self) -> list[nn.Linear]:
        return [layer for layer in self.classifier.modules() if isinstance(layer, nn.Linear)]


def _refuse(reason: str) -> NoReturn:
    raise SettingsError(f"the model's {reason}.", public=True)


def _extract(extractor: nn.Module, images: torch.Tensor) -> torch.Tensor:
    return extractor(images)


def _has_buffer(prefix: str, module: nn.Module, names: Collection[str]) -> bool:
    buffers = [buffer for name, buffer in module.named_buffers(prefix, recurse=False) if name in names]
    # BatchNorm's are none; a look at their values would have to wait for the accelerator.
    return any(isinstance(module, _BatchNorm) or not is_constant(buffer) for buffer in buffers)


def _two_layer(feature_size: int, num_classes: int) -> nn.Sequential:
    hidden = feature_size // 2
    return nn.Sequential(nn.Linear(feature_size, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))


PROJECTED = "projected_two_layer"
HEADS = ("linear", PROJECTED, "two_layer")
"""The classifiers that ``build_model`` accepts: one linear layer, or two with D // 2 units and ReLU between them.

``projected_two_layer`` are these two, behind a linear layer ``D -> D`` that belongs to the extractor, in the place of
the network's own head (FedIIR, Section 5.1: 512 units for ResNet-18, 2048 for ResNet-50).
"""


def build_model(
    name: str,
    num_classes: int,
    *,
    seed: int,
    head: str = "linear",
    channels: int | None = None,
    dims: int = 2,
    norm: str = "default",
    image_size: int = IMAGE_SIZE,
) -> ExtractorClassifier:
    """Return the model on the CPU, its random parameters determined by ``seed`` alone; global generators are restored.

    ``channels``, ``dims``, ``image_size`` and ``norm``: channels and number of sides of the images, their side in
    pixels, and the kind of normalization, for a network that is built for them. The extractor's initial parameters do
    not depend on ``head``, nor, for this package's networks, on ``num_classes``.

    Raises SettingsError for an unknown name or head, and for a network that contradicts its record.
    """
    network = NETWORKS.get(name)
    check_choice("head", head, HEADS)
    with seeded(seed, "model", name, "extractor"):
        extractor, feature_size = network.extractor(
            num_classes, channels=channels, dims=dims, norm=norm, image_size=image_size, projected=head == PROJECTED
        )
    with seeded(seed, "model", name, "classifier"):
        make: Callable[..., nn.Linear | nn.Sequential] = nn.Linear if head == "linear" else _two_layer
        classifier = make(feature_size, num_classes)
    return ExtractorClassifier(extractor, classifier)


def check_features(
    model: ExtractorClassifier, channels: int, image_size: int, *, dims: int = 2, dense: bool = False
) -> None:
    """Raise SettingsError unless the model returns one feature vector per image of ``image_size`` pixels per side.

    A ``dense`` model returns a vector per pixel. Model and global generators are left unchanged.
    """
    sides = [image_size] * dims
    with examined(model), plugin_code(f"the model cannot take images of shape {[channels, *sides]}"):
        features = model.features(torch.zeros(2, channels, *sides))
    expected = [2, *(sides if dense else []), model.feature_size]
    if list(features.shape) != expected:
        came, per = list(features.shape), "pixel" if dense else "image"
        _refuse(f"features have the shape {came}, expected {expected}: one vector per {per}")


def check_pooled(model: ExtractorClassifier, image_shape: tuple[int, ...]) -> None:
    """Raise SettingsError unless the features of images ``[C, H, W]`` are the output of the last average pooling.

    Then ``pool(feature_map(images))`` are the features. Model and global generators are left unchanged.
    """
    images = torch.rand(1, *image_shape, generator=torch_generator(0, "model", "pooled"))
    with examined(model):
        pooled = model.pool(model.feature_map(images))
        is_pooled = torch.equal(pooled, model.features(images))
    if not is_pooled:
        wanted = "a network without layers between pooling and head"
        _refuse(f"features are not the output of its global average pooling, expected {wanted}")


@contextmanager
def examined(model: ExtractorClassifier) -> Iterator[None]:
    """Put ``model`` in evaluation mode within the block, without gradients; no global generator is changed."""
    with torch.no_grad(), seeded(0, "model", "features"), evaluation_mode(model):
        yield


def is_constant(buffer: torch.Tensor) -> bool:
    """Return whether no update can hold a buffer's changes: a mask of truth values or infinities, a complex table.

    >>> is_constant(torch.tensor([True])), is_constant(torch.zeros(2)), is_constant(torch.tensor([0, -torch.inf]))
    (True, False, True)
    """
    return buffer.dtype is torch.bool or buffer.is_complex() or not bool(buffer.isfinite().all())


def parameter_kinds(model: nn.Module) -> dict[str, ParameterKind]:
    """Return the kind of every entry of ``model.state_dict()``, in its order.

    ``trainable``: all parameters, including those a method has frozen; ``float_buffer``: e.g. running means;
    ``integer_buffer``: everything else, e.g. batch counters and boolean masks.
    """
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    kinds = {}
    for name, value in model.state_dict().items():
        buffer = ParameterKind.FLOAT_BUFFER if value.is_floating_point() else ParameterKind.INTEGER_BUFFER
        kinds[name] = ParameterKind.TRAINABLE if name in parameters else buffer
    return kinds
