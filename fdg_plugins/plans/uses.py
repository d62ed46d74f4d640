# SPDX-License-Identifier: Apache-2.0
"""What a job names that may come from a plug-in, read before any of it is looked up."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fdg_plugins.settings.protocol import environment_settings, make_protocol

_IN_PROTOCOL = ("dataset", "model", "objective", "plugins")


class Uses(NamedTuple):
    """Settings with the names that they have, ``("model", "resnet18")``, and the files at hand that the job brings."""

    names: tuple[tuple[str, str], ...]
    files: tuple[str, ...]


def uses_of(aggregator: Any, protocols: tuple[Any, ...], environment: Mapping[str, str]) -> Uses:
    """Return what a job names; whatever is wrong with a name is said where it is used.

    Args:
        aggregator: name of the server's rule, or an object with a name and settings, as the job has it.
        protocols: the job's objects of settings, on real data and on the stand-in.
        environment: the server's ``FDG_*`` variables, which win over both.
    """
    layers = [layer for layer in (*protocols, environment_settings(environment)) if isinstance(layer, Mapping)]
    given = [make_protocol([{name: layer[name] for name in _IN_PROTOCOL if name in layer}]) for layer in layers]
    names = [("aggregator", name) for name in _names(aggregator)]
    names += [("weighting", name) for layer in (aggregator, *layers) for name in _weighting(layer)]
    for protocol in given:
        names += [("dataset", protocol.dataset), ("model", protocol.model)]
        names += [("objective", name) for name in _names(protocol.objective)]
    files = dict.fromkeys(name for protocol in given for name in protocol.plugins)
    return Uses(tuple(dict.fromkeys(names)), tuple(files))


def _names(spec: Any) -> Iterator[str]:
    name = spec.get("name") if isinstance(spec, Mapping) else spec
    if isinstance(name, str):
        yield name


def _weighting(settings: Any) -> Iterator[str]:
    if isinstance(settings, Mapping):
        yield from _names(settings.get("weighting"))
