# SPDX-License-Identifier: Apache-2.0
"""Everything a run needs to go on after its server died: one file, replaced after every round.

Model, tensors of the method's exchange, and as text the record and the states of aggregator and exchange lie in one
safetensors file, so that no crash can leave parts of two rounds. FLARE 2.9 has no snapshots of its own.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import torch
from safetensors import SafetensorError, safe_open

from fdg_plugins.controllers.record import RunRecord
from fdg_plugins.errors import DataError
from fdg_plugins.storage import save_tensors

CHECKPOINT_FILE = "checkpoint.safetensors"
VERSION = "1"
MODEL, EXCHANGE = "model/", "exchange/"


@dataclass(frozen=True)
class Checkpoint:
    """A run after its last complete round, which is that of the record."""

    record: RunRecord
    model: Mapping[str, torch.Tensor]
    aggregator: dict[str, Any]
    exchange: dict[str, Any] | None
    exchange_tensors: Mapping[str, torch.Tensor]

    def write(self, path: Path) -> None:
        """Replace the file at ``path``."""
        tensors = {MODEL + name: value for name, value in self.model.items()}
        tensors.update({EXCHANGE + name: value for name, value in self.exchange_tensors.items()})
        description = {
            "version": VERSION,
            "record": self.record.model_dump_json(),
            "aggregator": json.dumps(self.aggregator),
            "exchange": json.dumps(self.exchange),
        }
        save_tensors(path, tensors, description)


def read_checkpoint(path: Path, run: str) -> Checkpoint:
    """Return the checkpoint of ``run``; raise ``DataError`` if there is none or it cannot be read."""
    if not path.is_file():
        raise DataError(f"run {run} has no checkpoint at the server: it never finished a round, or it has ended.")
    try:
        with safe_open(path, framework="pt") as file:
            description = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        if description.get("version") != VERSION:
            raise ValueError(f"version {description.get('version')}, expected {VERSION}")
        return Checkpoint(
            RunRecord.model_validate_json(description["record"]),
            _part(tensors, MODEL),
            json.loads(description["aggregator"]),
            json.loads(description["exchange"]),
            _part(tensors, EXCHANGE),
        )
    except (OSError, SafetensorError, ValueError, KeyError, pydantic.ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"checkpoint of run {run} cannot be read: {reason}.") from error


def _part(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def check_continues(record: RunRecord, fresh: RunRecord) -> None:
    """Raise ``DataError`` naming the first thing in which a job differs from the run that it would continue."""
    then, now = record.protocol.model_dump(), fresh.protocol.model_dump()
    pairs: list[tuple[str, Any, Any]] = [(f"setting {name}", then[name], now[name]) for name in then]
    pairs += [("method", record.method.model_dump(), fresh.method.model_dump())]
    pairs += [("sources", record.sources, fresh.sources), ("held-out sites", record.held_out, fresh.held_out)]
    pairs += [("classes", record.classes, fresh.classes), ("stand-in", record.stand_in, fresh.stand_in)]
    pairs += [
        (f"split of site {site}", reply.split_hash, fresh.census[site].split_hash)
        for site, reply in record.census.items()
        if site in fresh.census
    ]
    for what, before, after in pairs:
        if before != after:
            raise DataError(f"run {record.run} cannot go on: its {what} was {before}, but is now {after}.")
