# SPDX-License-Identifier: Apache-2.0
"""The names in a job that plug-ins may bring."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fdg_plugins.errors import parsed_object
from fdg_plugins.plugins.registry import REGISTRY_OF
from fdg_plugins.settings.protocol import Protocol, environment_settings, make_protocol

_NAMING = tuple(setting for setting in REGISTRY_OF if setting in Protocol.model_fields)


class Uses(NamedTuple):
    """Pairs of setting and name, such as ``("model", "resnet18")``, and the plug-in files that the job brings."""

    names: tuple[tuple[str, str], ...]
    files: tuple[str, ...]


def uses_of(aggregator: Any, protocols: tuple[Any, ...], environment: Mapping[str, str]) -> Uses:
    """Return the names that a job uses; an invalid name is reported later, where it is used.

    ``aggregator`` is its aggregation rule, a name or an object; ``protocols`` are its settings objects for real data
    and for the stand-in, which the server's ``environment`` overrides.
    """
    layers = [layer for layer in (*protocols, environment_settings(environment)) if isinstance(layer, Mapping)]
    given = [
        make_protocol([{name: layer[name] for name in (*_NAMING, "plugins") if name in layer}]) for layer in layers
    ]
    # As text, a weighting may be an object in JSON, as for whatever takes it.
    weightings = [parsed_object(one.get("weighting")) for one in (aggregator, *layers) if isinstance(one, Mapping)]
    names = [("aggregator", name) for name in _names(aggregator)]
    names += [("weighting", name) for weighting in weightings for name in _names(weighting)]
    names += [use for protocol in given for use in names_in(protocol)]
    files = dict.fromkeys(name for protocol in given for name in protocol.plugins)
    return Uses(tuple(dict.fromkeys(names)), tuple(files))


def names_in(protocol: Protocol) -> list[tuple[str, str]]:
    """Return pairs of setting and name for the settings of a protocol that may refer to plug-ins."""
    return [(setting, name) for setting in _NAMING for name in _names(getattr(protocol, setting))]


def _names(spec: Any) -> Iterator[str]:
    name = spec.get("name") if isinstance(spec, Mapping) else spec
    if isinstance(name, str):
        yield name
