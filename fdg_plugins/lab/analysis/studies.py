# SPDX-License-Identifier: Apache-2.0
"""A study as three CSV files, from which the records of its runs are read as far as tables and figures need them.

``selections.csv.gz`` has a line per run, ``curves.csv.gz`` one per run and round, ``sites.csv.gz`` one per run, round
and site. Round 0 is the initial model. ``docs/pack_records.py`` writes them.
"""

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from fdg_plugins.errors import DataError
from fdg_plugins.messages import Evaluation
from fdg_plugins.record.round_record import AggregationRecord, LocalRecord, RoundRecord
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.storage import parse_json

FILES = SELECTIONS_FILE, CURVES_FILE, SITES_FILE = "selections.csv.gz", "curves.csv.gz", "sites.csv.gz"
NUMBERS = ("weights", "gamma", "cosines_with_mean", "cosines_with_direction")  # of an update
SUM, COUNT, OWN = ".sum", ".count", "own."  # around the name of a score; own: of a site's own model

Line = dict[str, Any]  # of a table: without what is empty


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
