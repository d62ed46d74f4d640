# SPDX-License-Identifier: Apache-2.0
"""Finished runs, found by their records, and how their methods are called.

Records lie in a sweep, a run's folder, a simulator's workspace, or a downloaded job.
"""

import gzip
import logging
import os
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis.studies import SELECTIONS_FILE, unpack
from fdg_plugins.lab.centralised import ALGORITHMS, algorithm_settings
from fdg_plugins.plugins.composition import published, title_of
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.record.method_settings import federated_defaults, federated_name, method_settings
from fdg_plugins.record.round_record import Method
from fdg_plugins.record.run_files import COMPRESSED_RESULTS_FILE, RESULTS_FILE
from fdg_plugins.record.run_record import SCHEMA_VERSION, RunRecord
from fdg_plugins.storage import parse_json

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
LARGEST = 2**30  # bytes of an uncompressed record; one of 1,000 sites and 800 rounds has less than half of it

_warn_once = cache(logging.getLogger(__name__).warning)


def method_name(method: Method) -> str:
    """Return the name of aggregator, weighting and objective together: ``fedomg``, ``fedomg+ga+dim``, ``fediir``.

    Compositions of FedAvg that were published under a name have that name. Of a plug-in that is not at hand, an
    aggregator is named by its class, a weighting or objective as in the record. A centralised run has its algorithm in
    the place of an aggregator.
    """
    for name, algorithm in ALGORITHMS.items():
        if method.aggregator == algorithm.__name__:
            return name
    for problem in METHODS.load_usable():  # a record may be of any plug-in, which a user's own commands may load
        _warn_once(problem)
    return federated_name(method)


def method_title(name: str) -> str:
    """Return a method's display name: ``FedOMG + GA`` for ``fedomg+ga``, ``V-REx`` for ``vrex``."""
    return ALGORITHMS[name].title if name in ALGORITHMS else title_of(name)


def method_order(name: str) -> tuple[int, int, str]:
    """Return the sort key of methods in tables: FedAvg first, compositions after the methods that they extend.

    Centralised references come last, after unknown methods.
    """
    known, references = list(published()), list(ALGORITHMS)
    if name in ALGORITHMS:
        return len(known) + 1 + references.index(name), 0, name
    base, *parts = name.split("+")
    return known.index(base) if base in known else len(known), len(parts), name


def default_settings(record: RunRecord) -> dict[str, Any] | None:
    """Return the settings of a run's method with the values that a job on the run's data set has by default.

    None for a method or a data set that is not at hand.
    """
    name = method_name(record.method)
    if name not in ALGORITHMS:
        return federated_defaults(record)
    found = algorithm_settings(name)
    return {setting: found.get(setting, value) for setting, value in method_settings(record).items()}


@dataclass(frozen=True)
class Run:
    """A finished run: its record, and the record's folder.

    ``planned``: how many rounds it was to have, if its record is cut off after fewer.
    """

    folder: Path
    record: RunRecord
    planned: int | None = None

    @cached_property
    def method(self) -> str:
        """The method's name, such as ``fedomg+ga``; see :func:`~fdg_plugins.lab.analysis.runs.method_name`."""
        return method_name(self.record.method)

    @property
    def is_reference(self) -> bool:
        """Whether this is a reference rather than a federated run."""
        return self.method in ALGORITHMS

    @property
    def is_pooled(self) -> bool:
        """Whether it is a reference on pooled data, whose rounds are checkpoints."""
        return self.is_reference and ALGORITHMS[self.method].pools

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
    files = {path: list(_files_at(path, left_out)) for path in paths}
    for file in chain.from_iterable(files.values()):
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
    empty = tuple(path for path, own in files.items() if not own)
    return FoundRuns(tuple(runs[place] for place in sorted(runs)), tuple(sorted(left_out.items())), empty)


def read_runs(file: Path) -> list[Run]:
    """Return the run of a record, or those of a study; raise ``DataError`` if it cannot be read."""
    if file.name == SELECTIONS_FILE:
        return [Run(file.parent / name, record) for name, record in unpack(file)]
    return [Run(file.parent, _read(file))]


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by their ``key``, in the order in which the keys first occur."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _read(file: Path) -> RunRecord:
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
    """Return the run, cut off after ``rounds``; raise ``DataError`` for one that is not finished or has fewer."""
    record = run.record
    if rounds is not None and not run.is_pooled:
        judged = max((one.after_round for one in record.evaluations), default=0)
        if judged < rounds:
            raise DataError(f"the run has {judged} rounds, expected at least {rounds}.")
        planned = record.protocol.rounds if record.protocol.rounds > rounds else None
        run = replace(run, record=record.after(rounds), planned=planned)
    elif record.status != "finished":
        because = f": {record.stopped_because.rstrip('.')}" if record.stopped_because else ""
        raise DataError(f"the run is not finished but {record.status}{because}.")
    if run.record.rounds and len(run.record.idle_rounds()) == len(run.record.rounds):  # 0.2.0 called it finished
        raise DataError("no round of the run changed the model.")
    return run


def _files_at(path: Path, left_out: dict[Path, str]) -> Iterator[Path]:
    def note(error: OSError) -> None:
        left_out[Path(error.filename)] = f"folder cannot be read: {error.strerror}."

    if not path.exists():
        raise DataError(f"path {path} does not exist; expected a folder of runs or a {RESULTS_FILE}.")
    if path.is_file():
        yield path
    for place, _, files in os.walk(path, onerror=note) if path.is_dir() else ():
        own = [name for name in (RESULTS_FILE, COMPRESSED_RESULTS_FILE, SELECTIONS_FILE) if name in files]
        if own and not (file := Path(place) / own[0]).is_symlink():
            yield file
