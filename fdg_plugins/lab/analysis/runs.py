# SPDX-License-Identifier: Apache-2.0
"""Finished runs, found by their records: in a sweep, a run's folder, a simulator's workspace, or a downloaded job."""

import gzip
import os
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis.names import is_centralised, method_name
from fdg_plugins.lab.analysis.studies import SELECTIONS_FILE, unpack
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.record.run_files import COMPRESSED_RESULTS_FILE, RESULTS_FILE
from fdg_plugins.record.run_record import SCHEMA_VERSION, RunRecord
from fdg_plugins.storage import parse_json

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
LARGEST = 2**30  # bytes of an uncompressed record; one of 1,000 sites and 800 rounds has less than half of it


@dataclass(frozen=True)
class Run:
    """A finished run: its record, and the record's folder.

    ``planned``: how many rounds it was to have, if its record is cut off after fewer. ``file``: the file that holds
    the record, if it was read from one.
    """

    folder: Path
    record: RunRecord
    planned: int | None = None
    file: Path | None = None

    @property
    def method(self) -> str:
        """The method's name, such as ``fedomg+ga``; see :func:`~fdg_plugins.lab.analysis.names.method_name`."""
        return method_name(self.record.method)

    @property
    def is_reference(self) -> bool:
        """Whether this is a centralised reference rather than a federated run."""
        return is_centralised(self.method)

    @property
    def target(self) -> str:
        """The held-out domain."""
        return self.record.protocol.target

    @property
    def seed(self) -> int:
        """The seed of splits, initial weights, order and augmentation."""
        return self.record.protocol.seed

    @property
    def dataset(self) -> DatasetRef:
        """The data set: its name, or the description of one's own."""
        return self.record.protocol.dataset


@dataclass(frozen=True)
class FoundRuns:
    """The finished runs below some paths, sorted by folder, and the folders left out, each with the reason.

    ``empty``: the paths below which no record was found.
    """

    runs: tuple[Run, ...]
    left_out: tuple[tuple[Path, str], ...]
    empty: tuple[Path, ...] = ()


def find_runs(paths: Iterable[Path], rounds: int | None = None) -> FoundRuns:
    """Return the runs at or below ``paths``: of a ``results.json``, a ``results.json.gz`` or a study's CSV files.

    Links are not followed. Unfinished and unreadable runs, and those of another schema version, are left out; a run
    below two of the paths is returned once. Raises ``DataError`` for a path that does not exist.

    ``rounds``: return federated runs, unfinished ones too, as if they had ended after so many rounds; those with fewer
    are left out.
    """
    runs: dict[tuple[Path, Path], Run] = {}
    left_out: dict[Path, str] = {}
    empty: list[Path] = []
    for path in paths:
        files = list(_files_at(path, left_out))
        empty += [path] if not files else []
        for file in files:
            try:
                found = read_runs(file)
            except DataError as error:
                left_out[file.parent] = str(error)
                continue
            for run in found:
                try:
                    runs.setdefault((run.folder.resolve(), file.resolve()), _finished(run, rounds))
                except DataError as error:
                    left_out[run.folder] = str(error)
    in_order = sorted(runs.values(), key=lambda run: (run.folder, run.file))
    return FoundRuns(tuple(in_order), tuple(sorted(left_out.items())), tuple(empty))


def read_runs(file: Path) -> list[Run]:
    """Return the run of a record, or those of a study; raise ``DataError`` if it cannot be read."""
    if file.name == SELECTIONS_FILE:
        return [Run(file.parent / name, record, file=file) for name, record in unpack(file)]
    return [Run(file.parent, _read(file), file=file)]


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by their ``key``, in the order in which the keys first occur."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _read(file: Path) -> RunRecord:
    """Return the record in ``file``, which may be anybody's; raise ``DataError`` if it cannot be read."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as content:
            text = content.read(LARGEST + 1)
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(f"{file.name} cannot be read: {str(error).rstrip('.')}.") from error
    if len(text) > LARGEST:
        raise DataError(f"{file.name} holds more than {LARGEST} bytes, expected a record.")
    value = parse_json(text, file.name)
    version = value.get("schema_version") if isinstance(value, dict) else None
    if version != SCHEMA_VERSION:
        raise DataError(field="schema_version", value=version, expected=str(SCHEMA_VERSION))
    record = RunRecord.read(value, file.name, DataError)
    if strangers := sorted({*record.sources, *record.held_out} - record.census.keys()):
        raise DataError(f"{file.name} has no census of site {strangers[0]!r}.")
    return record


def _finished(run: Run, rounds: int | None) -> Run:
    """Return the run, cut off after ``rounds`` if any.

    Raises ``DataError`` if it is not finished or has fewer, and if no round changed its model, which 0.2.0 could call
    finished.
    """
    record = run.record
    if rounds is not None and not run.is_reference:
        judged = max((one.after_round for one in record.evaluations), default=0)
        if judged < rounds:
            raise DataError(f"the run has {judged} rounds, expected at least {rounds}.")
        planned = record.protocol.rounds if record.protocol.rounds > rounds else None
        run = replace(run, record=record.after(rounds), planned=planned)
    elif record.status != "finished":
        because = f": {record.stopped_because.rstrip('.')}" if record.stopped_because else ""
        raise DataError(f"the run is not finished but {record.status}{because}.")
    if run.record.rounds and len(run.record.idle_rounds()) == len(run.record.rounds):
        raise DataError("no round of the run changed the model.")
    return run


def _files_at(path: Path, left_out: dict[Path, str]) -> Iterator[Path]:
    """Yield the records and studies at or below a path."""

    def note(error: OSError) -> None:
        left_out[Path(error.filename)] = f"folder cannot be read: {error.strerror}."

    if not path.exists():
        raise DataError(f"path {path} does not exist; expected a folder of runs or a {RESULTS_FILE}.")
    if path.is_file():
        yield path
        return
    for place, _, files in os.walk(path, onerror=note):
        own = [name for name in (RESULTS_FILE, COMPRESSED_RESULTS_FILE, SELECTIONS_FILE) if name in files]
        if own and not (file := Path(place) / own[0]).is_symlink():
            yield file
