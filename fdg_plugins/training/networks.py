# SPDX-License-Identifier: Apache-2.0
"""A site's network: built once for many sites of one process and copied for each task; and the threads it is worth.

Building a network takes several times as long as copying it, because random parameters are drawn that the received ones
then replace.
"""

import copy
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import ExitStack
from types import FunctionType
from typing import Any

import torch
from torch import nn

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.network import evaluation_mode
from fdg_plugins.objectives import build_network, image_shape
from fdg_plugins.settings.protocol import Protocol

WORTH_A_THREAD = 2.5e8
"""Multiplications of a batch's forward pass for each thread beyond the first; docs/benchmarks.md has what was measured.

Threads wait for each other after each layer. Where layers are small, or other processes use the cores, that takes
longer than the arithmetic.
"""

_HOOKS = {"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"}
_HOOKS |= {"_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"}
_OWN_WAYS = ("__getstate__", "__setstate__", "__reduce_ex__", "__deepcopy__", "_load_from_state_dict")
_AS_USUAL = {nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d}  # own ways for old files
_AS_USUAL |= {nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d}
_PLAIN = frozenset({str, int, float, bool, type(None), torch.Size, torch.device, torch.dtype})


class SharedNetworks:
    """Builds the network of a protocol once, and makes those of tasks from it; the last one built is kept."""

    def __init__(self) -> None:
        self._built_for: tuple[Protocol, int] | None = None
        self._network: ExtractorClassifier
        self._can_be_copied = False
        self._work: float | None = None

    def built(self, protocol: Protocol, num_classes: int) -> ExtractorClassifier:
        """Return what :func:`~fdg_plugins.objectives.build_network` returns, bit for bit; nobody may change it."""
        if self._built_for != (protocol, num_classes):
            self._network, self._built_for = build_network(protocol, num_classes), (protocol, num_classes)
            self._can_be_copied, self._work = is_copyable(self._network), None
        return self._network

    def filled(self, protocol: Protocol, num_classes: int, values: Mapping[str, torch.Tensor]) -> ExtractorClassifier:
        """Return a network with ``values``, of its whole state dict, that shares nothing with any other."""
        network = self.built(protocol, num_classes)
        if self._can_be_copied:
            return copy_of(network, values)
        made = build_network(protocol, num_classes)
        made.load_state_dict(values)
        return made

    def threads(self, protocol: Protocol, num_classes: int, most: int) -> int:
        """Return how many of ``most`` threads of a CPU the network's arithmetic is worth."""
        self.built(protocol, num_classes)
        if self._work is None:
            tried = build_network(protocol, num_classes)  # a pass may leave something in it
            self._work = multiplications(tried, torch.zeros(image_shape(protocol))) * protocol.batch_size
        return max(1, min(most, int(self._work // WORTH_A_THREAD)))


def is_copyable(network: nn.Module) -> bool:
    """Return whether :func:`copy_of` suits ``network``: hooks and functions may refer to the original."""
    for module in network.modules():
        own, kind = vars(module), type(module)
        if any(own.get(name) for name in _HOOKS) or any(isinstance(value, FunctionType) for value in own.values()):
            return False
        its_own = (getattr(kind, name, None) is not getattr(nn.Module, name, None) for name in _OWN_WAYS)
        if any(its_own) and kind not in _AS_USUAL:
            return False
    kept = network.state_dict(keep_vars=True).values()
    return all(type(value) in (nn.Parameter, torch.Tensor) and value.is_leaf for value in kept)


def copy_of(network: ExtractorClassifier, values: Mapping[str, torch.Tensor]) -> ExtractorClassifier:
    """Return what ``load_state_dict(values)`` makes of a deep copy of ``network``, in a fraction of the time.

    Each module is a new one, and each tensor is copied once, from ``values``.
    """
    memo: dict[int, Any] = {id(one): one.__new__(type(one)) for one in network.modules()}
    for name, old in network.state_dict(keep_vars=True).items():
        new = torch.empty_like(old, requires_grad=False).copy_(values[name])
        memo[id(old)] = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
    for module in network.modules():
        vars(memo[id(module)]).update({name: _copied(value, memo) for name, value in vars(module).items()})
    copied: ExtractorClassifier = memo[id(network)]
    return copied


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in _PLAIN or (kind is tuple and all(type(one) in _PLAIN for one in value)):
        return value
    if kind in (set, list, dict, OrderedDict) and not value:
        return kind()
    if id(value) not in memo:
        # A dict of parameters, buffers, modules or hooks; copy.deepcopy would be several times as slow.
        is_dict = kind is dict or kind is OrderedDict
        memo[id(value)] = (
            kind((name, _copied(one, memo)) for name, one in value.items()) if is_dict else copy.deepcopy(value, memo)
        )
    return memo[id(value)]


@torch.no_grad()
def multiplications(network: nn.Module, image: torch.Tensor) -> int:
    """Return roughly the number of multiplications of a forward pass for an image ``[C, H, W]`` or ``[C, H, W, Z]``.

    Each value of a layer's result takes as many as the layer has weights for one of its channels.
    """
    found = [0]

    def add(layer: nn.Module, _: Any, result: Any) -> None:
        values = result[0] if isinstance(result, tuple) else result
        if isinstance(values, torch.Tensor):
            weights = [one for one in layer.parameters(recurse=False) if one.ndim > 1]
            found.extend(values.numel() * one.numel() // len(one) for one in weights)

    with evaluation_mode(network), ExitStack() as hooks:
        for layer in network.modules():
            hooks.enter_context(layer.register_forward_hook(add))
        network(image[None])
    return sum(found)
