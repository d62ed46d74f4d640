# SPDX-License-Identifier: Apache-2.0
"""A note for tables whose methods have rules of their own for BatchNorm's statistics, as FedDG-GA and FedIIR have."""

from collections.abc import Iterable

from fdg_plugins.errors import SettingsError
from fdg_plugins.models.batch_norm import batch_norm_layers
from fdg_plugins.objectives.network import plain_network
from fdg_plugins.settings.protocol import Protocol


def note_on_batch_norm(methods: Iterable[tuple[str, Protocol]]) -> list[str]:
    """Return a note if the rules of ``methods``, their labels and protocols, differ and the network has BatchNorm.

    The rule is a setting of these methods, so their runs stand in one table; what they differ in is not the method
    alone.
    """
    found = list(methods)
    by_rule: dict[str, list[str]] = {}
    for label, protocol in found:
        by_rule.setdefault(protocol.batch_norm, []).append(label)
    if len(by_rule) < 2 or not _has_batch_norm(found[0][1]):
        return []
    rules = "; ".join(f"{rule} for {', '.join(labels)}" for rule, labels in sorted(by_rule.items()))
    return [f"batch_norm is {rules}: a difference between these is also one of BatchNorm's statistics."]


def _has_batch_norm(protocol: Protocol) -> bool:
    try:
        return bool(batch_norm_layers(plain_network(protocol, 2)))
    except SettingsError:  # a network or a data set that is not at hand
        return True
