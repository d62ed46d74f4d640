# SPDX-License-Identifier: Apache-2.0
"""The state before the last step, to which the server goes back if sites cannot train on the model that came of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.objectives import Exchange
from fdg_plugins.record.checkpoint import Checkpoint, read_checkpoint
from fdg_plugins.storage import keep_file
from fdg_plugins.training.global_model import GlobalModel

BEFORE_FILE = "checkpoint_before.safetensors"


@dataclass(frozen=True)
class Snapshot:
    """Model, aggregator's state and exchange before a step. All are replaced, never changed, so none is copied."""

    model: dict[str, torch.Tensor]
    aggregator: dict[str, Any]
    exchange: dict[str, Any] | None
    exchange_tensors: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, model: GlobalModel, aggregator: UpdateAggregator, exchange: Exchange | None) -> "Snapshot":
        """Return what is in force now."""
        return cls(
            model.state,
            aggregator.state(),
            None if exchange is None else exchange.state(),
            {} if exchange is None else exchange.tensors(),
        )

    @classmethod
    def of_checkpoint(cls, found: Checkpoint) -> "Snapshot":
        """Return what a checkpoint holds."""
        return cls(dict(found.model), found.aggregator, found.exchange, found.exchange_tensors)

    def put_back(self, model: GlobalModel, aggregator: UpdateAggregator, exchange: Exchange | None) -> None:
        """Make this the state in force."""
        model.state = self.model
        aggregator.restore(self.aggregator)
        if exchange is not None and self.exchange is not None:
            exchange.restore(self.exchange, self.exchange_tensors)


class Undo:
    """The snapshot before the last step, in memory and, for a run that goes on after a crash, in the run's folder."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.snapshot: Snapshot | None = None

    def keep(self, checkpoint: Path) -> None:
        """Keep the checkpoint of the state before a step that was taken, at no cost, before it is replaced."""
        if self.folder is not None and checkpoint.exists():
            keep_file(checkpoint, self.folder / BEFORE_FILE)

    def find(self, run: str, initial: Snapshot) -> None:
        """Take up the snapshot that a job before this one kept; ``initial`` is the state before round 1."""
        path = None if self.folder is None else self.folder / BEFORE_FILE
        self.snapshot = Snapshot.of_checkpoint(read_checkpoint(path, run)) if path and path.exists() else initial

    def forget(self) -> None:
        """Forget the snapshot: it was put back, or the run has ended."""
        self.snapshot = None
        if self.folder is not None:
            (self.folder / BEFORE_FILE).unlink(missing_ok=True)
