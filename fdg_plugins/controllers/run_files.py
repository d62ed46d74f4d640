# SPDX-License-Identifier: Apache-2.0
"""A run at the server, with its files: its results, and the state with which another job can go on."""

import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.objectives import Exchange
from fdg_plugins.record import run_files as names
from fdg_plugins.record.checkpoint import (
    CHECKPOINT_FILE,
    Checkpoint,
    check_continues,
    other_arithmetic,
    read_checkpoint,
)
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.storage import keep_file, save_tensors, write_bytes, write_json, writing
from fdg_plugins.training.global_model import GlobalModel

FILES = {"last": names.LAST_FILE, "source_validation": names.SELECTED_FILE}


def selected_file(after_round: int | str | None) -> str:
    """Return the name, in the state of a run, of the model after a round that source validation has selected."""
    return f"selected_after_{after_round}.safetensors"


@dataclass
class ServerRun:
    """What a run has at the server: record, global model, aggregation rule, exchange; and its files, each atomic.

    ``folder``: the job's results; ``state``: the run's folder for resuming. While the run goes on, only the state is on
    disk when a round ends: after a failure of the machine, the results are written anew from it.
    """

    record: RunRecord
    model: GlobalModel
    aggregator: UpdateAggregator
    exchange: Exchange | None
    folder: Path
    state: Path
    seconds_before: float = 0.0  # of the jobs that this one goes on from
    started: float = field(default_factory=time.perf_counter)

    def save(self) -> None:
        """Write the last model, the server's state and the record; what the exchange publishes is in the results.

        Its other tensors are in the checkpoint alone.
        """
        after_round, text = len(self.record.rounds), self._record_text()
        self.save_last()
        state = {"after_round": after_round, "aggregator": self.aggregator.state()}
        if self.exchange is not None:
            state["exchange"] = self.exchange.state()
            if published := self.exchange.published():
                named = {"after_round": str(after_round)}
                save_tensors(self.folder / names.TENSORS_FILE, published, named, durable=self._has_ended)
        write_json(self.folder / names.STATE_FILE, state, durable=self._has_ended)
        self.checkpoint().write(self.state / CHECKPOINT_FILE, text)
        for copy in self.state.glob(selected_file("*")):
            if copy.name != selected_file(self._selected_round()):
                copy.unlink()
        self.save_record(text)

    def save_last(self) -> None:
        """Write the model as it is now."""
        description = self.record.description_of_model(len(self.record.rounds))
        save_tensors(self.folder / names.LAST_FILE, self.model.state, description, durable=self._has_ended)

    def save_record(self, text: str | None = None) -> None:
        """Write ``results.json``; ``text``: its content, if known."""
        content = (text or self._record_text()).encode() + b"\n"
        write_bytes(self.folder / names.RESULTS_FILE, content, durable=self._has_ended)

    def _record_text(self) -> str:
        self.record.seconds = self.seconds_before + time.perf_counter() - self.started
        return self.record.model_dump_json(indent=1)

    def keep_selected(self, after_round: int) -> None:
        """Keep the evaluated model. It is the last one saved, except for the initial model, which is saved here.

        A copy is beside those of the models selected before: until the next checkpoint, the run goes on from these.
        """
        if after_round == 0:
            save_tensors(self.folder / names.LAST_FILE, self.model.state, self.record.description_of_model(after_round))
        keep_file(self.folder / names.LAST_FILE, self.folder / names.SELECTED_FILE)
        keep_file(self.folder / names.LAST_FILE, self.state / selected_file(after_round), private=True)

    def resume(self, *, other_files: bool = False) -> dict[str, dict[str, str]]:
        """Go back to the run's last complete round; return what this job computes with other than the run did.

        ``other_files``: plug-in files may differ. Raises ``DataError`` if there is no checkpoint or this job's settings
        differ from those of the run.
        """
        found, fresh = read_checkpoint(self.state / CHECKPOINT_FILE, self.record.run), self.record
        check_continues(found.record, fresh, other_files=other_files)
        changed = other_arithmetic(found.record, fresh)
        self.record = found.record
        self.record.resumed_after.append(len(self.record.rounds))
        self.record.resumed_with.append(changed)
        self.restore(found)
        self._restore_files()
        self.save()
        return changed

    def restore(self, state: Checkpoint) -> None:
        """Go back to the model, aggregator and exchange of ``state``. All are replaced, never changed in place."""
        self.model.state = dict(state.model)
        self.aggregator.restore(state.aggregator)
        if self.exchange is not None:
            self.exchange.learned = dict(state.exchange)

    def _restore_files(self) -> None:
        """Make the results of another job those of the record: the selected model, or none, and the sites' models."""
        selected = self._selected_round()
        if selected is None:
            (self.folder / names.SELECTED_FILE).unlink(missing_ok=True)
        elif (self.state / selected_file(selected)).exists():
            keep_file(self.state / selected_file(selected), self.folder / names.SELECTED_FILE)
        _keep_models(self.state, self.folder, private=False)
        self.seconds_before = self.record.seconds

    def keep_local_models(self) -> None:
        """Keep the sites' models of the last round in the state too, for a job that hands out the results."""
        _keep_models(self.folder, self.state, private=True)

    @property
    def _has_ended(self) -> bool:
        return self.record.status != "running"

    def _selected_round(self) -> int | None:
        return next((one.after_round for one in self.record.choices if one.rule == "source_validation"), None)

    def checkpoint(self) -> Checkpoint:
        """Return the state of the run as it is now; its parts are replaced, never changed in place."""
        learned = {} if self.exchange is None else self.exchange.learned
        return Checkpoint(self.record, self.model.state, self.aggregator.state(), learned)


def _keep_models(source: Path, target: Path, *, private: bool) -> None:
    for path in sorted((source / names.LOCAL_FOLDER).glob("*.safetensors")):
        keep_file(path, target / names.LOCAL_FOLDER / path.name, private=private)


def keep_results(results: Path, workspace: Path, run: str) -> Path:
    """Link what a finished simulation has left in ``results`` into a new folder beside ``workspace``, and return that.

    FLARE erases the workspace when it simulates again there. ``run``: the name of the run, to which the time is added.
    Raises ``DataError`` if the folder cannot be written.
    """
    with writing(workspace.parent / names.RUNS):
        folder = names.make_run_folder(workspace.parent / names.RUNS, run, datetime.now())
        for place in (results / name for name in names.KEPT):
            for path in filter(Path.is_file, (place, *place.rglob("*"))):
                keep_file(path, folder / path.relative_to(results))
    return folder
