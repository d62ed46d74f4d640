# SPDX-License-Identifier: Apache-2.0
"""The files of one run at the server: its results, and the state with which another job can go on."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.controllers.channel import ReportChannel
from fdg_plugins.errors import DataError
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE, Checkpoint
from fdg_plugins.record.run_files import LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.state.folders import remove_state
from fdg_plugins.storage import keep_file, write_bytes, write_json
from fdg_plugins.training.global_model import GlobalModel

STATE_FILE = "server_state.json"
FILES = {"last": LAST_FILE, "source_validation": SELECTED_FILE}


def selected_file(after_round: int | str) -> str:
    """Return the name, in the state of a run, of the model after a round that source validation has selected."""
    return f"selected_after_{after_round}.safetensors"


@dataclass
class RunFiles:
    """Writes a run's files, each atomically.

    ``folder``: the job's results; ``state``: the run's folder for resuming, None if the server keeps no state.
    """

    folder: Path
    state: Path | None
    record: RunRecord
    model: GlobalModel
    aggregator: UpdateAggregator
    channel: ReportChannel
    seconds_before: float = 0.0  # of the jobs that this one goes on from
    started: float = field(default_factory=time.perf_counter)

    def save(self) -> None:
        """Write the last model, the server's state and the record."""
        after_round = len(self.record.rounds)
        self.record.seconds = self.seconds_before + time.perf_counter() - self.started
        self.save_last()
        state = {"after_round": after_round, "aggregator": self.aggregator.state()}
        exchange = self.channel.save(self.folder, after_round)
        write_json(self.folder / STATE_FILE, {**state, "exchange": exchange} if exchange is not None else state)
        if self.state is not None:
            self.checkpoint().write(self.state / CHECKPOINT_FILE)
        for copy in self._copies.glob(selected_file("*")):
            if copy.name != selected_file(str(self._selected_round())):
                copy.unlink()
        self.save_record()

    def save_last(self) -> None:
        """Write the model as it is now."""
        self.model.save(self.folder / LAST_FILE, self.description(len(self.record.rounds)))

    def save_record(self) -> None:
        """Write ``results.json``."""
        self.record.seconds = self.seconds_before + time.perf_counter() - self.started
        write_bytes(self.folder / RESULTS_FILE, self.record.model_dump_json(indent=1).encode() + b"\n")

    def keep_selected(self, after_round: int) -> None:
        """Keep the evaluated model. It is the last one saved, except for the initial model, which is saved here.

        A copy is beside those of the models selected before: until the next checkpoint, the run goes on from these.
        """
        if after_round == 0:
            self.model.save(self.folder / LAST_FILE, self.description(after_round))
        keep_file(self.folder / LAST_FILE, self.folder / SELECTED_FILE)
        keep_file(self.folder / LAST_FILE, self._copies / selected_file(after_round), private=self.state is not None)

    def restore_selected(self) -> None:
        """Make the selected model in the results that of the record, by its copy; remove it if the record has none."""
        selected = self._selected_round()
        if selected is None:
            (self.folder / SELECTED_FILE).unlink(missing_ok=True)
        elif (self._copies / selected_file(selected)).exists():
            keep_file(self._copies / selected_file(selected), self.folder / SELECTED_FILE)

    def copy_local_models(self, *, restore: bool = False) -> None:
        """Keep the sites' models of the last round in the state too, for a job that hands out the results; or back."""
        if self.state is not None:
            source, target = (self.state, self.folder) if restore else (self.folder, self.state)
            for path in sorted((source / LOCAL_FOLDER).glob("*.safetensors")):
                keep_file(path, target / LOCAL_FOLDER / path.name, private=not restore)

    @property
    def _copies(self) -> Path:
        """The folder with copies of selected models."""
        return self.folder if self.state is None else self.state

    def _selected_round(self) -> int | None:
        return next((one.after_round for one in self.record.choices if one.rule == "source_validation"), None)

    def remove_state(self) -> None:
        """Remove the state for resuming; raise ``DataError`` if the disk does not allow it."""
        if self.state is not None:
            remove_state(self.state)

    def description(self, after_round: int) -> dict[str, str]:
        """Return what a model's file says about the model."""
        protocol = self.record.protocol
        return {
            "model": protocol.model,
            "classes": json.dumps(self.record.classes),
            "image_size": str(protocol.image_size),
            "dataset": self.record.data,
            "target": protocol.target,
            "after_round": str(after_round),
            "initial_weights": self.record.initial_weights.label,
        }

    def checkpoint_file(self) -> Path:
        """Return the file to go on from; raise ``DataError`` if the server keeps no state."""
        if self.state is None:
            raise DataError("the server keeps no state to go on from.")
        return self.state / CHECKPOINT_FILE

    def checkpoint(self) -> Checkpoint:
        """Return the state of the run as it is now; its parts are replaced, never changed in place."""
        exchange = self.channel.exchange
        return Checkpoint(
            self.record,
            self.model.state,
            self.aggregator.state(),
            None if exchange is None else exchange.state(),
            {} if exchange is None else exchange.learned,
        )
