# SPDX-License-Identifier: Apache-2.0
"""The networks of many sites in one process: built and adapted once; the tasks of the sites take turns with copies.

A site loads the whole state that it has received into the network, so a network that another task has used does as well
as a new one, unless that task has changed more of it than values: hooks, modules, attributes, which parameters are
trained. Building a network takes several times as long as copying it, because random parameters are drawn that the
received ones then replace, and copying it takes longer than loading the state.
"""

import copy
from enum import Enum
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import nn

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import build_network
from fdg_plugins.settings.protocol import Protocol

# Types whose values cannot change, and modules, which are looked into by themselves.
_FIXED = (bool, int, float, complex, str, bytes, type, type(None), Enum, partial, torch.dtype, torch.device, nn.Module)
_CONTAINERS = (dict, list, tuple, set, frozenset)
_DEEPEST = 8
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class SharedNetworks:
    """Builds the network of a protocol once and lends copies of it; the last one built is kept."""

    def __init__(self) -> None:
        self._built_for: tuple[Protocol, int] | None = None
        self._network: ExtractorClassifier | None = None  # None: it cannot be copied
        self._lent: list[tuple[ExtractorClassifier, list[Any]]] = []  # each with its form
        self._idle: list[tuple[ExtractorClassifier, list[Any]]] = []

    def build(self, protocol: Protocol, num_classes: int) -> ExtractorClassifier:
        """Return what :func:`~fdg_plugins.objectives.build_network` returns, to be loaded with a whole state.

        A new copy has the bits of a network that is built anew. One that was taken back has the values of its last
        task.
        """
        if self._built_for != (protocol, num_classes):
            network = build_network(protocol, num_classes)
            self._built_for, self._network = (protocol, num_classes), network if is_copyable(network) else None
            self._lent, self._idle = [], []
        if self._network is None:
            return build_network(protocol, num_classes)
        lent = self._idle.pop() if self._idle else self._new_copy(self._network)
        self._lent.append(lent)
        return lent[0]

    def take_back(self) -> None:
        """Say that no task uses a network any more: those that have the form of a new one serve the next tasks."""
        lent, self._lent = self._lent, []
        for network, form in lent:
            network.zero_grad(set_to_none=True)
            network.train()
            if _is_same(form_of(network), form):
                self._idle.append((network, form))

    @staticmethod
    def _new_copy(network: ExtractorClassifier) -> tuple[ExtractorClassifier, list[Any]]:
        new = copy.deepcopy(network)
        return new, form_of(new)


def is_copyable(network: nn.Module) -> bool:
    """Return whether a copy shares nothing with ``network``: hooks and functions may refer to the original."""
    for module in network.modules():
        own = vars(module)
        if any(own.get(name) for name in _HOOKS) or any(isinstance(value, FunctionType) for value in own.values()):
            return False
    return all(value.is_leaf for value in (*network.parameters(), *network.buffers()))


def form_of(network: nn.Module) -> list[Any]:
    """Return all objects that make up a network but the values in its state: modules, attributes, parameters, hooks.

    What may have changed in value without being another object has a new object in the form each time: buffers that the
    state leaves out, other tensors, and objects of which it is not known, such as a memory of features.
    """
    known = {id(value) for value in (*network.parameters(), *network.buffers())}
    found: list[Any] = []
    for module in network.modules():
        found.append(module)
        for name, value in vars(module).items():
            found += (name, *_parts(value, known))
        found += (object() for _ in module._non_persistent_buffers_set)
    for parameter in network.parameters():
        found += (parameter.requires_grad, parameter.grad, parameter._backward_hooks)
        found.append(getattr(parameter, "_post_accumulate_grad_hooks", None))
    return found


def _parts(value: Any, known: set[int], depth: int = 0) -> list[Any]:
    """Return an attribute's value and all that is in it; ``known``: the ids of the tensors of the network's state."""
    if isinstance(value, _CONTAINERS) and depth < _DEEPEST:
        inside = [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
        return [value, *(part for one in inside for part in _parts(one, known, depth + 1))]
    return [value if isinstance(value, _FIXED) or id(value) in known else object()]


def _is_same(one: list[Any], other: list[Any]) -> bool:
    """Return whether two forms have the same objects: equal ones do not count, as a changed list equals itself."""
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
