# SPDX-License-Identifier: Apache-2.0
"""The kinds of plug-ins, and the settings of a job that name them.

A registry is loaded when its kind is requested: those of networks and data sets are in packages that depend on this
one, and a process that needs neither loads neither.
"""

from collections.abc import Mapping
from typing import Any

from fdg_plugins.plugins.registry import Registry
from fdg_plugins.plugins.target import load_target

_METHODS = "fdg_plugins.plugins.methods:METHODS"
_NETWORKS = "fdg_plugins.models.networks:NETWORKS"
_DATASETS = "fdg_plugins.data.catalogue:DATASETS"
_TASKS = "fdg_plugins.tasks.task:TASKS"

KINDS: tuple[str, ...] = (_METHODS, _NETWORKS, _DATASETS, _TASKS)

# The names in a job, by the setting that contains them; every site reads those in fields of the protocol.
REGISTRY_OF: Mapping[str, str] = {
    "aggregator": _METHODS,
    "weighting": _METHODS,
    "objective": _METHODS,
    "model": _NETWORKS,
    "dataset": _DATASETS,
    "task": _TASKS,
}


def registries() -> tuple[Registry[Any], ...]:
    """Return the registries of all kinds."""
    return tuple(load_target(kind) for kind in KINDS)


def registry_of(setting: str) -> Registry[Any]:
    """Return the registry for a setting's names: ``"model"``, ``"dataset"``, ``"objective"`` and others."""
    registry: Registry[Any] = load_target(REGISTRY_OF[setting])
    return registry
