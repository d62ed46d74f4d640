# SPDX-License-Identifier: Apache-2.0
"""Pack the records of studies: ``python docs/pack_records.py RUNS STUDIES TAR``.

``RUNS`` has a folder per study, with runs at any depth. Each becomes a folder of CSV files below ``STUDIES``, from
which ``fdg report`` and ``fdg plot`` make the same tables and figures. All files of ``RUNS`` go into the archive
``TAR``, for a release; ``STUDIES/MANIFEST.json`` names it and each record in it, with size and SHA-256.
"""

import hashlib
import json
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fdg_plugins.lab.analysis import RULES, method_name
from fdg_plugins.lab.analysis.comparable import FREE_FIELDS
from fdg_plugins.lab.analysis.runs import COUNT, CURVES_FILE, NUMBERS, OWN, SELECTIONS_FILE, SITES_FILE, SUM, read_runs
from fdg_plugins.lab.analysis.selection import selected
from fdg_plugins.record.method_settings import method_settings
from fdg_plugins.record.run_record import RunRecord

DECIMALS = 8  # of weights and cosines


def main(runs: Path, studies: Path, archive: Path) -> None:
    """Write the archive, the CSV files and the manifest."""
    with tarfile.open(archive, "w") as tar:
        for file in sorted(path for path in runs.rglob("*") if path.is_file()):
            tar.add(file, file.relative_to(runs), filter=_anonymous)
    found: dict[str, Any] = {}
    for study in sorted(path for path in runs.iterdir() if path.is_dir()):
        files = sorted(study.rglob("results.json*"))
        found |= {file.relative_to(runs).as_posix(): _identity(file) for file in files}
        (studies / study.name).mkdir(parents=True, exist_ok=True)
        pack(
            [(file.parent.relative_to(study).as_posix(), run.record) for file in files for run in read_runs(file)],
            studies / study.name,
        )
    manifest = {"archive": {"file": archive.name, **_identity(archive)}, "records": found}
    (studies / "MANIFEST.json").write_text(json.dumps(manifest, indent=0) + "\n", encoding="utf-8")


def pack(runs: Sequence[tuple[str, RunRecord]], folder: Path) -> None:
    """Write runs, each with its name, as the CSV files of a study."""
    tables = {
        SELECTIONS_FILE: [_selection(name, record) for name, record in runs],
        CURVES_FILE: [line for name, record in runs for line in _curve(name, record)],
        SITES_FILE: [line for name, record in runs for line in _sites(name, record)],
    }
    for file, lines in tables.items():
        pd.DataFrame(lines, dtype=object).to_csv(
            folder / file, index=False, lineterminator="\n", compression={"method": "gzip", "mtime": 0}
        )


def _selection(name: str, record: RunRecord) -> dict[str, Any]:
    """Return what the rules select in a run, and the record without its rounds, as JSON."""
    protocol, chosen = record.protocol, {rule: selected(record, rule) for rule in RULES}
    compared = protocol.model_dump_json(exclude=FREE_FIELDS)
    return {
        "run": name,
        "method": method_name(record.method),
        "settings": json.dumps(method_settings(record), sort_keys=True),
        "target": protocol.target,
        "seed": protocol.seed,
        "protocol": hashlib.sha256(compared.encode()).hexdigest()[:12],
        "status": record.status,
        **{f"{rule}.round": one and one.after_round for rule, one in chosen.items()},
        **{f"{rule}.score": one and one.target for rule, one in chosen.items()},
        "record": record.model_dump_json(exclude={"rounds", "evaluations"}),
    }


def _curve(name: str, record: RunRecord) -> Iterator[dict[str, Any]]:
    rounds, judged = {one.round: one for one in record.rounds}, {one.after_round: one for one in record.evaluations}
    for number in sorted({*rounds, *judged}):
        trained, found = rounds.get(number), judged.get(number)
        yield {
            "run": name,
            "round": number,
            "target": found and found.target,
            "source_mean": found and found.source_mean,
            "source_worst": found and found.source_worst,
            "withdrawn": bool(found and found.undone),
            "undone": bool(trained and trained.undone),
            "reason": trained and trained.reason,
        }


def _sites(name: str, record: RunRecord) -> Iterator[dict[str, Any]]:
    rounds, judged = {one.round: one for one in record.rounds}, {one.after_round: one for one in record.evaluations}
    for number in sorted({*rounds, *judged}):
        trained, found = rounds.get(number), judged.get(number)
        scores = {"": found.sites if found else {}, OWN: found.personal.sites if found and found.personal else {}}
        for site in sorted(record.census):
            line: dict[str, Any] = {}
            for prefix, of_model in scores.items():
                for score, total in of_model[site].sums.items() if site in of_model else ():
                    line |= {f"{prefix}{score}{SUM}": total.sum, f"{prefix}{score}{COUNT}": total.count}
            if trained:
                local = trained.local.get(site)
                line |= {"drawn": True} if site in trained.drawn else {}
                line |= {"used": True} if site in trained.sites else {}
                line |= {"withheld": True} if local and local.epoch_losses is None else {}
                for numbers in NUMBERS if trained.aggregation else ():
                    value = (getattr(trained.aggregation, numbers) or {}).get(site)
                    line |= {} if value is None else {numbers: round(value, DECIMALS)}
            if line:
                yield {"run": name, "round": number, "site": site, **line}


def _identity(file: Path) -> dict[str, Any]:
    with file.open("rb") as content:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(content, "sha256").hexdigest()}


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member without owner and time, so that the same records give the same archive."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
