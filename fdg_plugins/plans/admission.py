# SPDX-License-Identifier: Apache-2.0
"""Which plug-ins a job would have the server load, and whether the server's operator allows them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fdg_plugins.plugins.admission import Allowed, admit
from fdg_plugins.settings.protocol import environment_settings, make_protocol

_IN_PROTOCOL = ("dataset", "model", "objective", "plugins")


def admit_job(
    aggregator: Any,
    protocols: tuple[Any, ...],
    environment: Mapping[str, str],
    custom: Path | None,
    allowed: Allowed,
) -> None:
    """Load the files at hand that a job names; raise ``SettingsError`` for a plug-in that the operator does not allow.

    Only names are read, before any is looked up; whatever else is wrong with them is said where they are used.

    Args:
        aggregator: name of the server's rule, or an object with a name and settings, as the job has it.
        protocols: the job's objects of settings, on real data and on the stand-in.
        environment: the server's ``FDG_*`` variables, which win over both.
        custom: the ``custom/`` folder of the job's app at the server.
        allowed: the server's list; None: everything installed may be used.
    """
    layers = [layer for layer in (*protocols, environment_settings(environment)) if isinstance(layer, Mapping)]
    given = [make_protocol([{name: layer[name] for name in _IN_PROTOCOL if name in layer}]) for layer in layers]
    uses = [("aggregator", name) for name in _names(aggregator)]
    uses += [("weighting", name) for layer in (aggregator, *layers) for name in _weighting(layer)]
    for protocol in given:
        uses += [("dataset", protocol.dataset), ("model", protocol.model), *_objective(protocol.objective)]
    files = dict.fromkeys(name for protocol in given for name in protocol.plugins)
    admit(uses, files, custom, allowed)


def _names(spec: Any) -> Iterator[str]:
    name = spec.get("name") if isinstance(spec, Mapping) else spec
    if isinstance(name, str):
        yield name


def _weighting(settings: Any) -> Iterator[str]:
    if isinstance(settings, Mapping):
        yield from _names(settings.get("weighting"))


def _objective(objective: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from (("objective", name) for name in _names(objective))
