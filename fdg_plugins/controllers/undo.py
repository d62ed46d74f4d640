# SPDX-License-Identifier: Apache-2.0
"""The state before the last step, which the server restores if sites cannot train on the resulting model."""

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
    """Model, aggregator state and exchange state before a step. All are replaced, never mutated, so none is copied."""

    model: dict[str, torch.Tensor]
    aggregator: dict[str, Any]
    exchange: dict[str, Any] | None
    exchange_tensors: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, model: GlobalModel, aggregator: UpdateAggregator, exchange: Exchange | None) -> "Snapshot":
        """Return a snapshot of the current state."""
        return cls(
            model.state,
            aggregator.state(),
            None if exchange is None else exchange.state(),
            {} if exchange is None else exchange.tensors(),
        )

    @classmethod
    def of_checkpoint(cls, found: Checkpoint) -> "Snapshot":
        """Return the snapshot stored in a checkpoint."""
        return cls(dict(found.model), found.aggregator, found.exchange, found.exchange_tensors)

    def put_back(self, model: GlobalModel, aggregator: UpdateAggregator, exchange: Exchange | None) -> None:
        """Restore this state."""
        model.state = self.model
        aggregator.restore(self.aggregator)
        if exchange is not None and self.exchange is not None:
            exchange.restore(self.exchange, self.exchange_tensors)


class Undo:
    """The snapshot before the last step: in memory, and in the run's folder so that a resumed run can use it."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.snapshot: Snapshot | None = None

    def keep(self, checkpoint: Path) -> None:
        """Keep the checkpoint from before the step just taken, by hard link if possible; call before it is replaced."""
        if self.folder is not None and checkpoint.exists():
            keep_file(checkpoint, self.folder / BEFORE_FILE)

    def find(self, run: str, initial: Snapshot) -> None:
        """Load the snapshot that an earlier job of the run kept; without one, use ``initial``, the initial state."""
        path = None if self.folder is None else self.folder / BEFORE_FILE
        self.snapshot = Snapshot.of_checkpoint(read_checkpoint(path, run)) if path and path.exists() else initial

    def forget(self) -> None:
        """Discard the snapshot, because it was restored or the run has ended."""
        self.snapshot = None
        if self.folder is not None:
            (self.folder / BEFORE_FILE).unlink(missing_ok=True)
