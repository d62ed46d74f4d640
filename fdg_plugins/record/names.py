# SPDX-License-Identifier: Apache-2.0
"""The name of a federated method in a record, in whatever form its job names it, and the name of a run."""

import re
from dataclasses import replace
from typing import Any

from fdg_plugins.aggregators.weightings import PLAIN_WEIGHTINGS
from fdg_plugins.plugins.composition import Composition, published
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.target import public_path
from fdg_plugins.record.run_record import Method, RunRecord

_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")


def federated_name(method: Method) -> str:
    """Return the name of aggregator, weighting and objective together: ``fedomg``, ``fedomg+ga+dim``, ``fediir``.

    Compositions of FedAvg that were published under a name have that name. An aggregator that is not known here is
    named by its class, a weighting or objective by the name in the record: ``fedomg+root``. So a run of a plug-in that
    is not loaded never has the name of a published method.
    """
    objective, _ = named_part(method.objective)
    made = _of_aggregator(method.aggregator)
    weighting = _weighting_part(method.settings.get("weighting", "")) or made.weighting
    return replace(made, weighting=weighting, objective=objective).name


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


def _weighting_part(spec: Any) -> str | None:
    """Return the name as a part of a weighting that makes a method, or that is not known here; None for any other."""
    name, _ = named_part(spec)
    known = (one.part_name for one in METHODS.loaded() if one.weighting is not None and name in one.names)
    return next(known, None if name in {"", *PLAIN_WEIGHTINGS} else name)


def _of_aggregator(class_name: str) -> Composition:
    """Return the composition of an aggregator's method; an aggregator without a record is a direction of its own."""
    for record in METHODS.loaded():
        if record.aggregator is not None and public_path(record.aggregator).rpartition(".")[2] == class_name:
            return published()[record.key]
    return Composition(class_name)
