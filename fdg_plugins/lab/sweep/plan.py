# SPDX-License-Identifier: Apache-2.0
"""The request of a sweep, as ``sweep.json`` keeps it, and its runs.

A run's name depends only on the run, so adding methods, domains, seeds or values leaves it unchanged.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import pydantic

from fdg_plugins.lab.sweep.values import as_json
from fdg_plugins.plugins.own_dataset import DatasetRef, OwnDataset, plain_dataset

LONGEST_NAME = 120
_PLAIN_VALUE = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?|[A-Za-z0-9_.]+")
_PLAIN_LENGTH = 24


class Request(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Everything that determines which runs there are and their settings; nothing that depends on the machine.

    ``settings`` has the values of ``--set`` by ``name`` or ``method:name``; several are an axis of the grid.
    """

    dataset: str | OwnDataset
    protocol: str
    methods: tuple[str, ...] = pydantic.Field(min_length=1)
    targets: tuple[str, ...] = pydantic.Field(min_length=1)
    seeds: tuple[int, ...] = pydantic.Field(min_length=1)
    settings: dict[str, tuple[Any, ...]] = {}


class DataFound(pydantic.BaseModel, frozen=True, extra="forbid"):
    """The images of a sweep: whether they only stand in for others, and their number per domain."""

    stand_in: bool
    images: dict[str, int]


class SweepFile(pydantic.BaseModel, frozen=True, extra="ignore"):
    """The content of ``sweep.json``; versions before 0.3.0 wrote more.

    ``pretrained``: the SHA-256 of ``FDG_PRETRAINED_FILE``, empty without one; None in sweeps from before this was kept.
    """

    format: Literal[1] = 1
    request: Request
    data: DataFound
    pretrained: str | None = None


class PlannedRun(NamedTuple):
    """One run: its name and its parts. ``settings`` contains every setting that deviates from the method's own.

    ``protocol`` is the name of the sweep's protocol; if the method does not know it, its values are in ``settings``.
    """

    name: str
    dataset: DatasetRef
    protocol: str
    method: str
    target: str
    seed: int
    settings: Mapping[str, Any]

    def content(self) -> dict[str, Any]:
        """Return the run as a JSON value."""
        return {**self._asdict(), "dataset": plain_dataset(self.dataset)}


def run_name(method: str, target: str, seed: int, point: Mapping[str, Any]) -> str:
    """Return a unique name that is safe for a file: ``fedomg-sketch-seed0-kappa0.5``."""
    parts = [method, target, f"seed{seed}", *(f"{name}{_value_text(point[name])}" for name in sorted(point))]
    name = "-".join(parts)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{_digest(name)}"


def _value_text(value: Any) -> str:
    """Return a value as part of a file name; other values than plain words and numbers get a digest.

    So do words with "-", which could be mistaken for the start of the next setting, and words that look like another
    JSON value: "1" and 1 are different values.
    """
    text = value if isinstance(value, str) else as_json(value)
    looks_like_json = isinstance(value, str) and re.match(r"-?\d|(true|false|null)$", value) is not None
    if len(text) <= _PLAIN_LENGTH and _PLAIN_VALUE.fullmatch(text) and not looks_like_json:
        return text
    words = re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_")[:_PLAIN_LENGTH]
    return f"{words}_{_digest(as_json(value))}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
