# SPDX-License-Identifier: Apache-2.0
"""The name of a federated method in a record, in whatever form its job names it, and the name of a run."""

import re
from dataclasses import replace
from typing import Any

from fdg_plugins.plugins.composition import Composition, published, weighting_parts
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.target import public_path
from fdg_plugins.record.run_record import Method, RunRecord

_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")


def federated_name(method: Method) -> str:
    """Return the name of aggregator, weighting and objective together: ``fedomg``, ``fedomg+ga+dim``, ``fediir``.

    Compositions of FedAvg that were published under a name have that name. An aggregator that this package does not
    know is named by its class.
    """
    weighting, _ = named_part(method.settings.get("weighting", ""))
    objective, _ = named_part(method.objective)
    made = _of_aggregator(method.aggregator)
    return replace(
        made, weighting=weighting if weighting in weighting_parts() else made.weighting, objective=objective
    ).name


def named_part(spec: Any) -> tuple[str, dict[str, Any]]:
    """Return name and settings of a part given as a name or as an object with a name."""
    if not isinstance(spec, dict):
        return str(spec), {}
    return str(spec.get("name", "")), {name: value for name, value in spec.items() if name != "name"}


def name_of_run(record: RunRecord) -> str:
    """Return method, data set, held-out domain and seed, safe for a file: ``fedomg-pacs-sketch-seed0``."""
    protocol = record.protocol
    parts = [federated_name(record.method), str(protocol.dataset), protocol.target, f"seed{protocol.seed}"]
    return _UNSAFE.sub("_", "-".join([*parts, *(["STAND-IN"] if record.stand_in else [])]))


def _of_aggregator(class_name: str) -> Composition:
    """Return the composition of an aggregator's method; an aggregator without a record is a direction of its own."""
    for record in METHODS.loaded():
        if record.aggregator is not None and public_path(record.aggregator).rpartition(".")[2] == class_name:
            return published()[record.key]
    return Composition(class_name)
