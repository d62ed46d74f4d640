# SPDX-License-Identifier: Apache-2.0
"""The record of a network: a factory of any ``nn.Module`` that classifies images, and the name of its head.

>>> from torch import nn
>>> def tiny(num_classes: int) -> nn.Module:
...     return nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.ReLU(), nn.Linear(8, num_classes))
>>> extractor, feature_size = Network(name="tiny", build=tiny).extractor(num_classes=7)
>>> feature_size, extractor[-1]
(8, Identity())
"""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Annotated, Any, Literal, NoReturn

import torch
from pydantic import Field
from torch import nn

from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.plugins.fields import check_fields
from fdg_plugins.plugins.registry import plugin_code

IMAGE_SIZE = 224
"""Side, in pixels, of the images for which a network is built unless another is given."""

Target = str | Any
"""A function or class, or where it is, ``"package.module:name"`` of an installed package, which is loaded at use."""


def load_target(target: Target) -> Any:
    """Return the function or class."""
    return resolve_name(target) if isinstance(target, str) else target


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network by name.

    An identity replaces the head, a linear layer: the network then returns its features ``[B, D]``, and the protocol's
    ``head`` is put on top.

    Args:
        name: the name by which a protocol's ``model`` selects it.
        build: function that returns the module, with random parameters and on the CPU, or its path
            ``"package.module:function"``. It is called with those of these arguments that it has: ``num_classes``;
            ``channels`` of the images, if the record has no number itself; ``dims``, 2 for images and 3 for
            volumes; ``image_size``, the side of the square images in pixels; ``norm``, the protocol's
            ``normalization``, unless it is ``"default"`` and the argument has a default. A required argument of
            another name receives the number of classes.
        head: dotted name of the linear layer that computes the logits, as in ``named_modules()``: ``"fc"``,
            ``"classifier.6"``; default: the last linear layer in the order of the modules.
        features: ``D``, for a module without a head that already returns features; it then has no ``head``.
        channels: the channels of its images ``[B, C, H, W]``: 3 for colour, 1 for grey; None for any number.
        dense: whether it returns features for every pixel, ``[B, H, W, D]``, instead of ``[B, D]``.
        multiple: number of which the sides of its images are multiples.
        smallest: side of the smallest images, in pixels.
        norms: the values of ``norm`` that ``build`` accepts beside ``"default"``; None: all, if it has the argument.
        small: whether its state dict, for images, takes less than 2 MiB; such models are sent within FLARE's messages.
        output: dotted name of the module that a file with pretrained weights may lack, or have with other numbers.
    """

    name: str
    build: Target
    head: str | None = None
    features: Annotated[int, Field(ge=1)] | None = None
    channels: Literal[1, 3] | None = 3
    dense: bool = False
    multiple: Annotated[int, Field(ge=1)] = 1
    smallest: Annotated[int, Field(ge=1)] = 1
    norms: tuple[str, ...] | None = None
    small: bool = False
    output: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise SettingsError(field="a network's name", value=self.name, expected="letters, digits and '_'")
        check_fields(self, f"network {self.name!r}")
        if isinstance(self.build, nn.Module):
            raise SettingsError(field=f"build of network {self.name!r}", value=self.build, expected="its function")

    @property
    def arguments(self) -> frozenset[str]:
        """The names of the arguments of ``build``, which is loaded to find out."""
        return frozenset(inspect.signature(load_target(self.build)).parameters)

    def has_norm(self, norm: str) -> bool:
        """Return whether the network can be built with this kind of normalization; ``build`` is loaded."""
        return norm == "default" or ("norm" in self.arguments and (self.norms is None or norm in self.norms))

    def extractor(
        self,
        num_classes: int,
        *,
        channels: int | None = None,
        dims: int = 2,
        norm: str = "default",
        image_size: int = IMAGE_SIZE,
        projected: bool = False,
    ) -> tuple[nn.Module, int]:
        """Return the network without its head, and the number of features ``D`` that the head expects.

        ``channels``: of the images; default: 3. ``projected``: a linear layer ``D -> D`` replaces the head, or follows
        where there is none. Raises SettingsError for a network that is not as its record says.
        """
        given = {"num_classes": num_classes, "dims": dims, "norm": norm, "image_size": image_size}
        given |= {"channels": channels or 3} if self.channels is None else {}
        module = self._built(given)
        images = torch.zeros(2, self.channels or channels or 3, *[image_size] * dims)
        if self.features is not None:
            self._check_output(module, images)
            layers = [("network", module), ("projection", nn.Linear(self.features, self.features))]
            return nn.Sequential(OrderedDict(layers)) if projected else module, self.features
        linear = {path: layer for path, layer in module.named_modules() if isinstance(layer, nn.Linear) and path}
        name = self.head or next(reversed(linear), "")
        if (layer := linear.get(name)) is None:
            wanted = f"one of its linear layers ({', '.join(linear) or 'it has none'}), or a record with features"
            self._refuse(f"has the head {name!r}", wanted)
        self._check_output(module, images, name)
        parent, _, last = name.rpartition(".")
        replaced = nn.Linear(layer.in_features, layer.in_features) if projected else nn.Identity()
        setattr(module.get_submodule(parent), last, replaced)
        return module, layer.in_features

    def _check_output(self, module: nn.Module, images: torch.Tensor, head: str | None = None) -> None:
        """Raise ``SettingsError`` unless a plug-in's network returns a tensor, which is the output of its head.

        This package's own networks are covered by tests, a pass over volumes would take long, and on torch's device
        ``meta`` nothing is computed. Whether a network can take the images is evaluated elsewhere.
        """
        where = self.build if isinstance(self.build, str) else str(getattr(self.build, "__module__", ""))
        if where.startswith("fdg_plugins.") or images.dim() > 4 or images.is_meta:
            return
        try:
            with plugin_code("the pass"):
                output, of_head = _outputs(module, images, None if head is None else module.get_submodule(head))
        except FDGError:
            return
        if not isinstance(output, torch.Tensor):
            what, wanted = f"returns {type(output).__name__}", "a tensor of features or logits"
        elif head is not None and (of_head is None or not torch.equal(output, of_head)):
            what = f"{'does not call' if of_head is None else 'computes something after'} its head {head!r}"
            taken = "" if self.head else "; that is its last linear layer, and the field head names another"
            wanted = f"the head's logits as its output{taken}"
        else:
            return
        self._refuse(what, wanted)

    def _built(self, given: Mapping[str, Any]) -> nn.Module:
        with plugin_code(f"model {self.name!r} cannot be built"):
            module = _call(load_target(self.build), given)
        if not isinstance(module, nn.Module):
            self._refuse(f"is built as a {type(module).__name__}", "a torch.nn.Module")
        return module

    def _refuse(self, what: str, expected: str) -> NoReturn:
        raise SettingsError(f"model {self.name!r} {what}, expected {expected}.", public=True)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put ``model`` into evaluation mode; on exit, restore the mode of every module."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


def network_of(build: Target, *, name: str) -> Network:
    """Return the record of a factory that has none: its head is the last linear layer.

    Its images have 3 channels, or any number if the factory has the argument ``channels``.
    """
    with plugin_code(f"model {name!r} has no factory at {build!r}"):
        has_channels = "channels" in inspect.signature(load_target(build)).parameters
    return Network(name=name, build=build, channels=None if has_channels else 3)


def _call(build: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Return what the factory builds from the arguments it names; another required one is the number of classes."""
    parameters = inspect.signature(build).parameters
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = {name for name, one in parameters.items() if one.default is inspect.Parameter.empty}
    named = {
        name: value for name, value in given.items() if name in parameters and (name in required or value != "default")
    }
    others = [name for name, one in parameters.items() if name in required - named.keys() and one.kind not in many]
    if len(others) + ("num_classes" in named) > 1:
        wanted = f"arguments of {', '.join(given)} and at most one for the number of classes"
        raise SettingsError(f"the factory of the model requires {', '.join(others)}, expected {wanted}.", public=True)
    return build(**named, **dict.fromkeys(others, given["num_classes"]))


def _outputs(module: nn.Module, images: torch.Tensor, head: nn.Module | None) -> tuple[Any, torch.Tensor | None]:
    """Return what a network makes of ``images``, and the output of its head in that pass, None if it was not called."""
    seen: list[torch.Tensor] = []

    def replaced(layer: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        # Numbers of both signs, of which no activation, mask or scale is the identity.
        seen.append(torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view(output.shape))
        return seen[-1]

    hook: AbstractContextManager[Any] = nullcontext() if head is None else head.register_forward_hook(replaced)
    with torch.no_grad(), evaluation_mode(module), hook:
        output = module(images)
    return output, seen[-1] if seen else None
