# SPDX-License-Identifier: Apache-2.0
"""``fdg audit``: show a site's administrator what has left the site."""

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import RenderableType
from rich.text import Text

from fdg_plugins.cli.console import FAILED, say
from fdg_plugins.cli.output import check_output, write_output
from fdg_plugins.cli.tables import make_table, show
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.values import counted, visible

if TYPE_CHECKING:
    from fdg_plugins.audit.file import AuditLine, BrokenLine

HASH_DIGITS = 12
NUMBERS = ("round", "tensors", "values", "bytes", "L2 norm")


class Wanted(NamedTuple):
    """The answers that the user asks for: of one job, by the beginning of its id, and of one round; None: of any."""

    job: str | None = None
    round_number: int | None = None

    def includes(self, line: "AuditLine") -> bool:
        """Return whether the user asks for the answer."""
        return (self.job is None or line.job.startswith(self.job)) and self.round_number in (None, line.round)

    @property
    def text(self) -> str:
        """The options in words; empty for all answers."""
        parts = {"job": self.job, "round": self.round_number}
        return " and ".join(f"{name} {value}" for name, value in parts.items() if value is not None)


class Reading(NamedTuple):
    """One audit file: one intact line per requested answer, and the broken lines."""

    path: Path
    lines: "list[AuditLine]"
    broken: "list[BrokenLine]"


def audit(
    place: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER_OR_FILE",
            help="A site's workspace or kit, a folder of several, or the file fdg_audit.jsonl itself.",
            show_default=False,
        ),
    ] = None,
    kit: Annotated[Path | None, typer.Option(help="The site's startup kit, in place of a folder or file.")] = None,
    job: Annotated[str | None, typer.Option(help="Only this job: its id, or how the id begins.")] = None,
    round_number: Annotated[
        int | None, typer.Option("--round", min=0, help="Only this round, counted from 0 as in the table.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="List every tensor and every value of each answer.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with everything that the file holds.")] = False,
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

      fdg audit --kit /srv/flare/photo

      fdg audit simulator_workspace --round 0 --details

      fdg audit /srv/flare/photo --job 3379af42 --json

      fdg audit /srv/flare/photo --csv left-photo.csv
    """
    if as_json and as_csv is not None:
        raise SettingsError("--json and --csv exclude each other: one is printed, the other written to a file.")
    if job == "":  # as of a variable that is not set: everything begins with nothing
        raise SettingsError("--job is '', expected the id of a job, or how it begins.")
    if (place is None) == (kit is None):
        raise SettingsError("fdg audit reads one place, expected FOLDER_OR_FILE or --kit.")
    paths = _audit_files(place or kit or Path())
    if as_csv is not None:
        check_output(as_csv, "--csv", paths)
    readings = _read_wanted(paths, Wanted(job, round_number))
    if as_csv is not None:
        _write_csv(as_csv, readings)
    elif as_json:
        typer.echo(json.dumps([_as_json(reading) for reading in readings], indent=1))
    else:
        for reading in readings:
            _show(reading, details)
    _warn_of_broken(readings)
    if any(reading.broken for reading in readings):
        raise typer.Exit(FAILED)


def _audit_files(place: Path) -> list[Path]:
    """Return the audit file at ``place``, or those in that folder."""
    from fdg_plugins.audit.file import AUDIT_FILE

    if not place.exists():
        raise DataError(f"{place} is not there, expected a site's workspace or its {AUDIT_FILE}.")
    return _files_in(place) if place.is_dir() else [place]


def _files_in(folder: Path) -> list[Path]:
    """Return the audit file in ``folder``, or those in its direct subfolders."""
    from fdg_plugins.audit.file import AUDIT_FILE

    own = folder / AUDIT_FILE
    if found := [own] if own.exists() else sorted(folder.glob(f"*/{AUDIT_FILE}")):
        return found
    raise DataError(
        f"folder {folder} holds no {AUDIT_FILE}, and no folder right below it does; a site makes it with its first "
        "answer, in its workspace or in NVFL_AUDIT_ROOT."
    )


def _read_wanted(paths: list[Path], wanted: Wanted) -> list[Reading]:
    """Read the files; raise ``DataError`` if the user asks for a job or a round of which there is no answer."""
    readings = [_read(path, wanted) for path in paths]
    if wanted != Wanted() and not any(reading.lines for reading in readings):
        raise DataError(_nothing_found(paths, wanted))
    return readings


def _read(path: Path, wanted: Wanted) -> Reading:
    from fdg_plugins.audit.file import AuditLine, audit_entries, shown_lines

    entries = list(audit_entries(path))
    # Paired before filtering: a filter may have turned an answer into an error reply, which names no round.
    shown = shown_lines(entry for entry in entries if isinstance(entry, AuditLine))
    broken = [entry for entry in entries if not isinstance(entry, AuditLine)]
    return Reading(path, list(filter(wanted.includes, shown)), broken)


def _nothing_found(paths: list[Path], wanted: Wanted) -> str:
    everything = [line for path in paths for line in _read(path, Wanted()).lines]
    jobs = ", ".join(dict.fromkeys(visible(line.job) for line in everything)) or "none"
    rounds = sorted({line.round for line in everything if line.round is not None})
    span = f", rounds {rounds[0]} to {rounds[-1]}" if rounds else ""
    return f"nothing of {wanted.text} is in {paths[0]}; it holds the jobs {jobs}{span}."


def _warn_of_broken(readings: list[Reading]) -> None:
    for reading in readings:
        for line in reading.broken:
            warning = f"Warning: {reading.path}: line {line.number} is left out: {line.reason}."
            say(visible(warning), style="yellow", on_stderr=True)


def _write_csv(path: Path, readings: list[Reading]) -> None:
    """Write all answers to one CSV file, and say how many."""
    from fdg_plugins.audit.export import audit_csv

    lines = [line for reading in readings for line in reading.lines]
    write_output(path, audit_csv(lines).encode(), "--csv", [reading.path for reading in readings])
    say(visible(f"{path}: {counted(len(lines), 'answer')}"))


def _as_json(reading: Reading) -> dict[str, Any]:
    return {
        "file": str(reading.path),
        "answers": [json.loads(line.model_dump_json()) for line in reading.lines if line.stage == "sent"],
        "not_sent": [json.loads(line.model_dump_json()) for line in reading.lines if line.stage != "sent"],
        "broken": [line._asdict() for line in reading.broken],
    }


def _show(reading: Reading, details: bool) -> None:
    """Print a table for each job of a file; a new table begins when its config or a version has changed."""
    if not reading.lines:
        say(visible(f"{reading.path}: no answer"))
    for _, group in groupby(reading.lines, lambda line: (line.site, line.job, line.config_sha256, line.versions)):
        lines = list(group)
        show(_heading(lines), *(_details(lines) if details else [_summary(lines)]), "")


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


def _summary(lines: "list[AuditLine]") -> RenderableType:
    head = ("round", "task", "code", "part", "tensors", "bytes", "L2 norm", "values", "filters")
    return make_table(head, (row for line in lines for row in _summary_rows(line)), NUMBERS)


def _summary_rows(line: "AuditLine") -> Iterator[tuple[str, ...]]:
    """Yield a row for each part of an answer; the fields of the whole answer are in the first row."""
    from fdg_plugins.audit.file import PartSum, code_text, filters_text, part_sums, round_text

    start = (round_text(line), line.task, code_text(line))
    end = (str(len(line.values) + len(line.others)), filters_text(line))
    for part in part_sums(line) or [PartSum("-", 0, 0, 0.0)]:
        yield (*start, part.part, str(part.arrays), f"{part.bytes:,}", f"{part.norm:.4g}" if part.arrays else "-", *end)
        start, end = ("", "", ""), ("", "")


def _details(lines: "list[AuditLine]") -> Iterator[RenderableType]:
    """Yield each answer: a heading, its filters, its tensors, and all other values by their position."""
    for line in lines:
        yield Text("\n" + visible(_headline(line)))
        yield Text(visible(_filters(line)))
        if line.tensors:
            yield _tensors(line)
        values = {**{place: json.dumps(value) for place, value in line.values.items()}, **line.others}
        if values:
            yield make_table(("value", ""), values.items())


def _headline(line: "AuditLine") -> str:
    from fdg_plugins.audit.file import code_text, round_text

    kind = line.kind or "no content"
    return f"round {round_text(line)}, {line.task}: {code_text(line)}, {kind}, {line.time}"


def _filters(line: "AuditLine") -> str:
    """Return the filters that an answer passed, each with whose it is."""
    if line.filters is None:
        return "filters unknown"
    return ", ".join(f"{one.filter} ({one.source}'s)" for one in line.filters) or "no filters"


def _tensors(line: "AuditLine") -> RenderableType:
    head = ("part", "name", "shape", "dtype", "bytes", "L2 norm")
    rows = (
        (one.part, one.name, str(list(one.shape)), one.dtype, f"{one.bytes:,}", f"{one.norm:.4g}")
        for one in line.tensors
    )
    return make_table(head, rows, NUMBERS)
