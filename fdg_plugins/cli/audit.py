# SPDX-License-Identifier: Apache-2.0
"""``fdg audit``: show a site's administrator what has left the site."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.text import Text

from fdg_plugins.cli.console import FAILED, say, warn
from fdg_plugins.cli.tables import make_table, show
from fdg_plugins.errors import DataError, SettingsError, counted, visible

if TYPE_CHECKING:
    from fdg_plugins.audit.file import AuditLine, BrokenLine

HASH_DIGITS = 12
COLUMNS = ("round", "task", "code", "part", "tensors", "bytes", "L2 norm", "values", "filters")
NUMBERS = ("round", "tensors", "values", "bytes", "L2 norm")


class Reading(NamedTuple):
    """One audit file: one intact line per answer, and the broken lines."""

    path: Path
    lines: "list[AuditLine]"
    broken: "list[BrokenLine]"


def audit(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="KIT|FOLDER|FILE",
            help="A site's startup kit or workspace, a folder of several, or the file fdg_audit.jsonl itself.",
            show_default=False,
        ),
    ],
    job: Annotated[str | None, typer.Option(help="Only this job: its id, or how the id begins.")] = None,
    as_csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write a CSV file instead: a row for every tensor and every value."),
    ] = None,
) -> None:
    """Show what has left a site, with sizes and norms.

    Reads the file in which the site recorded each answer before sending it. Rounds count from 0, as in messages; '-'
    is an answer that names none. The L2 norm is that of all tensors of a part together, e.g. of the update.

    'not sent' is an answer that the executor returned but FLARE did not send: its task was aborted, a filter failed,
    the site crashed, or a component of the job asked for it instead of the server.

    Exit codes: 0 all lines could be read, 1 a line is broken and is named on stderr, 2 there is nothing to read.

    Examples:

      fdg audit /srv/flare/photo

      fdg audit simulator_workspace --job 3379af42

      fdg audit /srv/flare/photo --csv left-photo.csv
    """
    if job == "":  # as of a variable that is not set: everything begins with nothing
        raise SettingsError(field="--job", value=job, expected="the id of a job, or how it begins")
    readings = [_read(path, job or "") for path in _audit_files(place)]
    if job and not any(reading.lines for reading in readings):
        raise DataError(f"nothing of job {job} is in {readings[0].path}.")
    if as_csv is not None:
        _write_csv(as_csv, readings)
    else:
        for reading in readings:
            _show(reading)
    for reading in readings:
        for line in reading.broken:
            warn(visible(f"{reading.path}: line {line.number} is left out: {line.reason}."))
    if any(reading.broken for reading in readings):
        raise typer.Exit(FAILED)


def _audit_files(place: Path) -> list[Path]:
    """Return the audit file at ``place``, or those in that folder or right below it."""
    from fdg_plugins.audit.file import AUDIT_FILE

    if place.is_file():
        return [place]
    own = place / AUDIT_FILE
    if found := [own] if own.exists() else sorted(place.glob(f"*/{AUDIT_FILE}")):
        return found
    raise DataError(
        f"{place} holds no {AUDIT_FILE}, and no folder right below it does; a site makes it with its first answer, in "
        "its workspace or in NVFL_AUDIT_ROOT."
    )


def _read(path: Path, job: str) -> Reading:
    """Return the answers of jobs whose ids begin with ``job``."""
    from fdg_plugins.audit.file import AuditLine, audit_entries, shown_lines

    entries = list(audit_entries(path))
    # Paired before filtering: a filter may have turned an answer into an error reply, which names no round.
    shown = shown_lines(entry for entry in entries if isinstance(entry, AuditLine))
    broken = [entry for entry in entries if not isinstance(entry, AuditLine)]
    return Reading(path, [line for line in shown if line.job.startswith(job)], broken)


def _write_csv(path: Path, readings: list[Reading]) -> None:
    """Write all answers to one CSV file, and say how many."""
    from fdg_plugins.audit.export import audit_csv
    from fdg_plugins.storage import write_bytes

    if any(path.exists() and path.samefile(reading.path) for reading in readings):
        raise SettingsError(field="--csv", value=str(path), expected="another file than those that are read")
    lines = [line for reading in readings for line in reading.lines]
    write_bytes(path, audit_csv(lines).encode())
    say(visible(f"{path}: {counted(len(lines), 'answer')}"))


def _show(reading: Reading) -> None:
    """Print a table for each job of a file; a new table begins when its config or a version has changed."""
    if not reading.lines:
        say(visible(f"{reading.path}: no answer"))
    for _, group in groupby(reading.lines, lambda line: (line.site, line.job, line.config_sha256, line.versions)):
        lines = list(group)
        show(_heading(lines), make_table(COLUMNS, (row for line in lines for row in _rows(line)), NUMBERS), "")


def _heading(lines: "list[AuditLine]") -> Text:
    first, last = lines[0], lines[-1]
    unsent = sum(line.stage != "sent" for line in lines)
    answers = counted(len(lines), "answer") + (f", {unsent} of them not sent" if unsent else "")
    config = f"config {first.config_sha256[:HASH_DIGITS]}" if first.config_sha256 else "no config"
    known = ", ".join([config, *(f"{name} {number}" for name, number in first.versions.items())])
    num_bytes = sum(line.bytes for line in lines if line.stage == "sent")
    return Text.assemble(
        (visible(f"site {first.site}, job {first.job}"), "bold"),
        "\n" + visible(f"{answers}, {num_bytes:,} bytes, {first.time} to {last.time}"),
        "\n" + visible(known),
    )


def _rows(line: "AuditLine") -> Iterator[tuple[str, ...]]:
    """Yield a row for each part of an answer; the fields of the whole answer are in the first row."""
    from fdg_plugins.audit.file import PartSum, code_text, filters_text, part_sums, round_text

    start = (round_text(line), line.task, code_text(line))
    end = (str(len(line.values) + len(line.others)), filters_text(line))
    for part in part_sums(line) or [PartSum("-", 0, 0, 0.0)]:
        yield (*start, part.part, str(part.arrays), f"{part.bytes:,}", f"{part.norm:.4g}" if part.arrays else "-", *end)
        start, end = ("", "", ""), ("", "")
