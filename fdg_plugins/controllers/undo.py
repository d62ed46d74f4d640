# SPDX-License-Identifier: Apache-2.0
"""The state before the last step, which the server restores if sites cannot train on the resulting model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.aggregators.base import MAX_IDLE_ROUNDS
from fdg_plugins.errors import FDGError
from fdg_plugins.objectives import Exchange
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE, Checkpoint, read_checkpoint
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import why_unchanged
from fdg_plugins.storage import keep_file
from fdg_plugins.training.global_model import GlobalModel
from fdg_plugins.values import counted

BEFORE_FILE = "checkpoint_before.safetensors"
NEXT_FILE = "checkpoint_before_next.safetensors"


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

    @contextmanager
    def keeping(self, *, stepped: bool) -> Iterator[None]:
        """Keep the checkpoint from before the step just taken, by hard link if possible, while the block replaces it.

        ``stepped``: whether a step was taken; otherwise nothing is kept. Until the checkpoint has been replaced, the
        one kept before is still the one that may be needed, so neither is lost if the process ends in between.
        """
        if not stepped or self.folder is None or not (checkpoint := self.folder / CHECKPOINT_FILE).exists():
            yield
            return
        following = self.folder / NEXT_FILE
        keep_file(checkpoint, following, private=True)
        yield
        following.replace(self.folder / BEFORE_FILE)

    def find(self, run: str, last_step: int, initial: Snapshot | None) -> None:
        """Load the snapshot that an earlier job of the run kept before the step of round ``last_step``.

        Without one, use ``initial``, the initial state; None if there were steps before: nothing is taken back then.
        """
        self.snapshot, latest = initial, -1
        for path in self._files():
            found = read_checkpoint(path, run) if path.exists() else None
            if found is not None and latest < len(found.record.rounds) < last_step:
                self.snapshot, latest = Snapshot.of_checkpoint(found), len(found.record.rounds)

    def forget(self) -> None:
        """Discard the snapshot, because it was restored; its files stay until the restored state is on disk."""
        self.snapshot = None

    def remove(self) -> None:
        """Remove the files of a snapshot that was restored, or of a run that has ended."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> tuple[Path, ...]:
        return () if self.folder is None else (self.folder / BEFORE_FILE, self.folder / NEXT_FILE)


def check_progress(record: RunRecord) -> None:
    """Raise ``FDGError`` if the last three rounds, or all of a shorter run, left the model as it was."""
    most = min(MAX_IDLE_ROUNDS, record.protocol.rounds)
    last = record.rounds[-most:]
    if len(last) == most and all(one.is_idle for one in last):
        why = why_unchanged(last[-1])
        raise FDGError(f"{counted(most, 'round')} in a row left the model as it was; the last because {why}.")
