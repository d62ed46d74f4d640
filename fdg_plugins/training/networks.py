# SPDX-License-Identifier: Apache-2.0
"""The network of many sites in one process: built and adapted once, and copied for each task.

Building a network takes several times as long as copying it, because random parameters are drawn that the received ones
then replace.
"""

import copy
from types import FunctionType

from torch import nn

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import build_network
from fdg_plugins.settings.protocol import Protocol

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class SharedNetworks:
    """Builds the network of a protocol once and hands out copies of it; the last one built is kept."""

    def __init__(self) -> None:
        self._built_for: tuple[Protocol, int] | None = None
        self._network: ExtractorClassifier | None = None  # None: it cannot be copied

    def build(self, protocol: Protocol, num_classes: int) -> ExtractorClassifier:
        """Return what :func:`~fdg_plugins.objectives.build_network` returns, bit for bit."""
        if self._built_for != (protocol, num_classes):
            network = build_network(protocol, num_classes)
            self._built_for, self._network = (protocol, num_classes), network if is_copyable(network) else None
        return build_network(protocol, num_classes) if self._network is None else copy.deepcopy(self._network)


def is_copyable(network: nn.Module) -> bool:
    """Return whether a copy shares nothing with ``network``: hooks and functions may refer to the original."""
    for module in network.modules():
        own = vars(module)
        if any(own.get(name) for name in _HOOKS) or any(isinstance(value, FunctionType) for value in own.values()):
            return False
    return all(value.is_leaf for value in (*network.parameters(), *network.buffers()))
