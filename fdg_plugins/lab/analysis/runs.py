# SPDX-License-Identifier: Apache-2.0
"""Finished runs, found by their records, and how their methods are called.

Records lie in a sweep, a run's folder, a simulator's workspace, or a downloaded job. A study is three CSV files, from
which the records of its runs are read as far as tables and figures need them: ``selections.csv.gz`` has a line per run,
``curves.csv.gz`` one per run and round, ``sites.csv.gz`` one per run, round and site. Round 0 is the initial model.
``docs/pack_records.py`` writes them.
"""

import gzip
import logging
import math
import os
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from fdg_plugins.errors import DataError
from fdg_plugins.lab.centralised import ALGORITHMS, algorithm_settings
from fdg_plugins.messages import Evaluation
from fdg_plugins.plugins.composition import published, title_of
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.record.method_settings import federated_defaults, federated_name, method_settings
from fdg_plugins.record.round_record import AggregationRecord, LocalRecord, Method, RoundRecord
from fdg_plugins.record.run_files import COMPRESSED_RESULTS_FILE, MODELS_FOLDER, RESULTS_FILE
from fdg_plugins.record.run_record import SCHEMA_VERSION, RunRecord
from fdg_plugins.storage import parse_json

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
LARGEST = 2**30  # bytes of an uncompressed record; one of 1,000 sites and 800 rounds has less than half of it
FILES = SELECTIONS_FILE, CURVES_FILE, SITES_FILE = "selections.csv.gz", "curves.csv.gz", "sites.csv.gz"
NUMBERS = ("weights", "gamma", "cosines_with_mean", "cosines_with_direction")  # of an update
SUM, COUNT, OWN = ".sum", ".count", "own."  # around the name of a score; own: of a site's own model

Line = dict[str, Any]  # of a study's table: without what is empty

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
    judges = {site for one in record.evaluations for site in one.sites}
    if strangers := sorted({*record.sources, *record.held_out, *judges} - record.census.keys()):
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
    for place, folders, files in os.walk(path, onerror=note) if path.is_dir() else ():
        if Path(place).parts[-2:] == MODELS_FOLDER:  # records of what a job evaluates, not of what it has run
            folders.clear()
        own = [name for name in (RESULTS_FILE, COMPRESSED_RESULTS_FILE, SELECTIONS_FILE) if name in files]
        if own and not (file := Path(place) / own[0]).is_symlink():
            yield file


# --- a study ---


def unpack(file: Path) -> Iterator[tuple[str, RunRecord]]:
    """Yield name and record of each run of a study, given its ``selections.csv.gz``.

    A record has no losses, times, norms and sizes. Raises ``DataError`` for files that are not those of a study.
    """
    try:
        runs, curves, sites = (_lines(file.with_name(name)) for name in FILES)
        of_round: dict[tuple[str, int], dict[str, Line]] = {}
        for line in sites:
            of_round.setdefault((line["run"], line["round"]), {})[line["site"]] = line
        records = {
            one["run"]: RunRecord.read(parse_json(one["record"], file.name), file.name, DataError) for one in runs
        }
        for line in curves:
            _add_round(records[line["run"]], line, of_round.get((line["run"], line["round"]), {}))
    except (OSError, EOFError, zlib.error, ValueError, KeyError) as error:
        raise DataError(f"{file} and the files beside it are not those of a study: {error}.") from error
    yield from records.items()


def _lines(file: Path) -> list[Line]:
    names = {"run": str, "site": str, "record": str}  # also those that look like numbers or missing values
    found = pd.read_csv(file, converters=names).to_dict("records")
    return [{str(key): value for key, value in line.items() if value == value} for line in found]


def _add_round(record: RunRecord, line: Line, sites: dict[str, Line]) -> None:
    def of_sites(column: str) -> dict[str, Any]:
        return {site: of_site[column] for site, of_site in sites.items() if column in of_site}

    if line["round"]:
        numbers = {name: of_sites(name) for name in NUMBERS}
        unknown = {"coefficients": {}, "update_norms": {}, "mean_norm": math.nan, "direction_norm": math.nan}
        local = LocalRecord(
            epoch_losses=None, local=None, steps=0, learning_rate=math.nan, num_samples=0, seconds=math.nan
        )
        found = RoundRecord(
            round=line["round"],
            drawn=tuple(of_sites("drawn")),
            sites=tuple(of_sites("used")),
            failures={},
            local=dict.fromkeys(of_sites("withheld"), local),
            aggregation=AggregationRecord(**numbers, **unknown) if numbers["weights"] else None,
            reason=line.get("reason"),
            undone=line["undone"],
            seconds=math.nan,
            aggregation_seconds=math.nan,
            bytes_down=0,
            bytes_up=0,
        )
        record.rounds.append(found)
    if scores := _scores(record, sites, ""):
        judges = [site for site in record.sources if site in scores]
        evaluated = record.add_evaluation(line["round"], scores, judges, _scores(record, sites, OWN))
        evaluated.undone = line["withdrawn"]
        # None unless all that were asked have answered.
        evaluated.source_mean, evaluated.source_worst = line.get("source_mean"), line.get("source_worst")


def _scores(record: RunRecord, sites: dict[str, Line], prefix: str) -> dict[str, Evaluation]:
    found: dict[str, Evaluation] = {}
    for site, line in sites.items():
        names = [name.removesuffix(SUM) for name in line if name.endswith(SUM) and name.startswith(OWN) is bool(prefix)]
        sums = {one.removeprefix(prefix): {"sum": line[one + SUM], "count": line[one + COUNT]} for one in names}
        if sums:
            split = "test" if site in record.held_out else "validation"
            count = min(one["count"] for one in sums.values())
            found[site] = Evaluation.model_validate({"split": split, "loss": None, "count": count, "sums": sums})
    return found
