# SPDX-License-Identifier: Apache-2.0
"""``fdg audit``: show a site's administrator what has left the site, or write it for a spreadsheet."""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from typer import Argument, Option

from fdg_plugins.audit import file
from fdg_plugins.cli.console import FAILED, make_table, say, show, warn
from fdg_plugins.errors import DataError, SettingsError, counted, harmless, visible
from fdg_plugins.storage import write_bytes

HASH_DIGITS = 12
COLUMNS = ("round", "task", "code", "part", "tensors", "bytes", "L2 norm", "values", "filters")
NUMBERS = ("round", "tensors", "values", "bytes", "L2 norm")


def audit(
    place: Annotated[Path, Argument(metavar="KIT|FOLDER|FILE", help="A site's kit, or its file fdg_audit.jsonl.")],
    job: Annotated[str | None, Option(help="Only this job: its id, or how the id begins.")] = None,
    as_csv: Annotated[Path | None, Option("--csv", metavar="FILE", help="Write every tensor and value.")] = None,
) -> int:
    """Show what has left a site, with sizes and norms.

    Rounds count from 0, as in messages; '-' is an answer that names none. The L2 norm is that of all tensors of a part
    together, e.g. of the update. 'not sent' is an answer that the executor returned but FLARE did not send.

    Exit codes: 0 all lines could be read, 1 a line is broken and is named on stderr, 2 there is nothing to read.

    Examples:

      fdg audit /srv/flare/photo --job 3379af42
      fdg audit /srv/flare/photo --csv left-photo.csv
    """
    entries = {path: list(file.audit_entries(path)) for path in _audit_files(place)}
    lines: dict[Path, list[file.AuditLine]] = {}
    for path, came in entries.items():
        # Paired before the job is chosen: a filter may have turned an answer into an error reply, which names no round.
        answers = file.shown_lines(entry for entry in came if isinstance(entry, file.AuditLine))
        lines[path] = [line for line in answers if line.job.startswith(job or "")]
    shown = [line for found in lines.values() for line in found]
    if job and not shown:
        raise DataError(f"nothing of job {job} is in {next(iter(lines))}.")
    if as_csv is None:
        for path, found in lines.items():
            _show(path, found)
    elif any(as_csv.exists() and as_csv.samefile(path) for path in lines):
        raise SettingsError(field="--csv", value=as_csv, expected="another file than those that are read")
    else:
        write_bytes(as_csv, audit_csv(shown).encode())
        say(visible(f"{as_csv}: {counted(len(shown), 'answer')}"))
    broken = [(path, one) for path, found in entries.items() for one in found if isinstance(one, file.BrokenLine)]
    for path, one in broken:
        warn(visible(f"{path}: line {one.number} is left out: {one.reason}."))
    return FAILED if broken else 0


def _audit_files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    own = place / file.AUDIT_FILE
    if found := [own] if own.exists() else sorted(place.glob(f"*/{file.AUDIT_FILE}")):
        return found
    where = "a site makes it with its first answer, in its workspace or in NVFL_AUDIT_ROOT"
    raise DataError(f"{place} holds no {file.AUDIT_FILE}, and no folder right below it does; {where}.")


def _show(path: Path, lines: Sequence[file.AuditLine]) -> None:
    """Print a table for each job of a file; a new table begins when its config or a version has changed."""
    if not lines:
        say(visible(f"{path}: no answer"))
    for _, group in groupby(lines, lambda line: (line.site, line.job, line.config_sha256, line.versions)):
        one = list(group)
        show(*_heading(one), make_table(COLUMNS, (row for line in one for row in _rows(line)), NUMBERS), "")


def _heading(lines: Sequence[file.AuditLine]) -> Iterator[Text]:
    first, last, unsent = lines[0], lines[-1], sum(line.stage != "sent" for line in lines)
    yield Text(visible(f"site {first.site}, job {first.job}"), "bold")
    answers = counted(len(lines), "answer") + (f", {unsent} of them not sent" if unsent else "")
    num_bytes = sum(line.bytes for line in lines if line.stage == "sent")
    yield Text(visible(f"{answers}, {num_bytes:,} bytes, {first.time} to {last.time}"))
    config = f"config {first.config_sha256[:HASH_DIGITS]}" if first.config_sha256 else "no config"
    yield Text(visible(", ".join([config, *(f"{name} {number}" for name, number in first.versions.items())])))


def _rows(line: file.AuditLine) -> Iterator[tuple[str, ...]]:
    code = line.return_code if line.stage == "sent" else f"{line.return_code}, {file.NOT_SENT}"
    filters = ", ".join(one.filter.rpartition(".")[2] for one in line.filters or ()) or "-"
    start: tuple[str, ...] = ("-" if line.round is None else str(line.round), line.task, code)
    # FLARE may not have told which filters the answer has passed.
    end: tuple[str, ...] = (str(len(line.values) + len(line.others)), "?" if line.filters is None else filters)
    for part in dict.fromkeys(one.part for one in line.tensors) or ["-"]:
        of = [one for one in line.tensors if one.part == part]
        norm = f"{math.hypot(*(one.norm for one in of)):.4g}" if of else "-"
        yield (*start, part, str(len(of)), f"{sum(one.bytes for one in of):,}", norm, *end)
        start, end = ("", "", ""), ("", "")


_ANSWER = ("site", "time", "job", "task", "round", "state", "return_code", "id")
_CONTENT = ("what", "part", "name", "shape", "dtype", "bytes", "l2_norm", "value")
FIELDS = (*_ANSWER, *_CONTENT, "filters", "config_sha256", "versions")


def audit_csv(lines: Iterable[file.AuditLine]) -> str:
    """Return the answers as CSV with a header: a row for each tensor, value and other object, one for an empty answer.

    An answer of several sites' files has its ``site``; the rows of one answer share its ``id`` and ``time``.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    for line in lines:
        filters = (f"{one.filter} ({one.source})" for one in line.filters or ())
        answer: dict[str, Any] = {
            **line.model_dump(include=set(FIELDS) - {"bytes"}),
            "state": "sent" if line.stage == "sent" else file.NOT_SENT,
            "filters": "unknown" if line.filters is None else "; ".join(filters),
            "versions": "; ".join(f"{name} {number}" for name, number in line.versions.items()),
        }
        for row in _contents(line):
            writer.writerow({field: harmless(cell) for field, cell in {**answer, **row}.items()})
    return text.getvalue()


def _contents(line: file.AuditLine) -> Iterator[dict[str, Any]]:
    for one in line.tensors:
        shape = " x ".join(map(str, one.shape))
        tensor = {"part": one.part, "name": one.name, "shape": shape, "dtype": one.dtype, "bytes": one.bytes}
        yield {"what": "tensor", **tensor, "l2_norm": one.norm}
    for name, value in line.values.items():
        is_word = value is None or isinstance(value, bool)  # written as in JSON
        yield {"what": "value", "name": name, "value": json.dumps(value) if is_word else value}
    for name, kind in line.others.items():
        yield {"what": "object", "name": name, "value": kind}
    if not (line.tensors or line.values or line.others):
        yield {"what": "nothing"}
