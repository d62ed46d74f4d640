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
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.record.run_files import COMPRESSED_RESULTS_FILE, RESULTS_FILE
from fdg_plugins.record.run_record import SCHEMA_VERSION, RunRecord
from fdg_plugins.storage import parse_json
from fdg_plugins.values import counted, shorten

Key = TypeVar("Key", bound=Hashable)
LARGEST = 2**30  # bytes of a compressed record; one of 1,000 sites and 800 rounds has less than half of it


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
    """Return the runs whose ``results.json`` is at or below ``paths``; links below them are not followed.

    A folder without that file may hold ``results.json.gz`` instead, which is the same compressed. Unfinished and
    unreadable runs, and those of another schema version, are left out; a run below two of the paths is returned once.
    Raises ``DataError`` for a path that does not exist.

    ``rounds``: return federated runs, unfinished ones too, as if they had ended after so many rounds; those that have
    not come so far are left out.
    """
    runs: dict[Path, Run] = {}
    left_out: dict[Path, str] = {}
    empty: list[Path] = []
    for file in _distinct_files(paths, left_out, empty):
        try:
            runs[file] = _finished(Run(file.parent, _read(file), file=file), rounds)
        except DataError as error:
            left_out[file.parent] = str(error)
    return FoundRuns(tuple(runs[file] for file in sorted(runs)), tuple(sorted(left_out.items())), tuple(empty))


def grouped(runs: Iterable[Run], key: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    """Return the runs by their ``key``, in the order in which the keys first occur."""
    groups: dict[Key, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def _read(file: Path) -> RunRecord:
    """Return the record in ``file``; raise ``DataError`` with the reason if it cannot be read."""
    try:
        value = parse_json(_uncompressed(file) if file.suffix == ".gz" else file.read_bytes(), file.name)
    except OSError as error:
        raise DataError(f"{file.name} cannot be read: {error.strerror}.") from error
    version = value.get("schema_version") if isinstance(value, dict) else None
    if version != SCHEMA_VERSION:
        raise DataError(f"schema_version is {shorten(version)}, expected {SCHEMA_VERSION}.")
    record = RunRecord.read(value, file.name, DataError)
    if strangers := sorted({*record.sources, *record.held_out} - record.census.keys()):
        raise DataError(f"{file.name} has no census of site {shorten(strangers[0])}, expected one of each site.")
    return record


def _uncompressed(file: Path) -> bytes:
    """Return what is in a file that gzip wrote; raise ``DataError`` if it is damaged, or too large for a record."""
    try:
        with gzip.open(file) as text:
            content = text.read(LARGEST + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{file.name} is not a whole file of gzip: {str(error).rstrip('.')}.") from error
    if len(content) > LARGEST:
        raise DataError(f"{file.name} holds more than {LARGEST} bytes, expected a record.")
    return content


def _finished(run: Run, rounds: int | None) -> Run:
    """Return the run, cut off after ``rounds`` if any; raise ``DataError`` if it is not finished, or has fewer."""
    record = run.record
    if rounds is None or is_centralised(run.method):
        if record.status != "finished":
            because = f": {record.stopped_because.rstrip('.')}" if record.stopped_because else ""
            raise DataError(f"the run is not finished but {record.status}{because}.")
        return _checked(run)
    judged = max((one.after_round for one in record.evaluations), default=0)
    if judged < rounds:
        raise DataError(f"the run has {counted(judged, 'round')}, expected at least {rounds}.")
    planned = record.protocol.rounds if record.protocol.rounds > rounds else None
    return _checked(replace(run, record=record.after(rounds), planned=planned))


def _checked(run: Run) -> Run:
    """Return the run; raise ``DataError`` if no round changed its model, which 0.2.0 could call finished."""
    if run.record.rounds and len(run.record.idle_rounds()) == len(run.record.rounds):
        raise DataError("no round of the run changed the model.")
    return run


def _distinct_files(paths: Iterable[Path], left_out: dict[Path, str], empty: list[Path]) -> Iterator[Path]:
    """Yield the records at or below ``paths``, each once.

    Adds folders that cannot be listed to ``left_out``, and paths without a record to ``empty``.
    """
    seen: set[Path] = set()
    for path in paths:
        files = list(_record_files(path, left_out))
        if not files:
            empty.append(path)
        for file in files:
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield file


def _record_files(path: Path, left_out: dict[Path, str]) -> Iterator[Path]:
    """Return the records at or below ``path``; raise ``DataError`` if it does not exist."""
    if not path.exists():
        raise DataError(f"path {path} does not exist; expected a folder of runs or a {RESULTS_FILE}.")
    return iter([path]) if path.is_file() else _files_below(path, left_out)


def _files_below(folder: Path, left_out: dict[Path, str]) -> Iterator[Path]:
    def note(error: OSError) -> None:
        left_out[Path(error.filename)] = f"folder cannot be read: {error.strerror}."

    for place, _, files in os.walk(folder, onerror=note):
        own = [name for name in (RESULTS_FILE, COMPRESSED_RESULTS_FILE) if name in files]
        if own and not (file := Path(place) / own[0]).is_symlink():
            yield file
