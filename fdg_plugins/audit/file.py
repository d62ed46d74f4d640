# SPDX-License-Identifier: Apache-2.0
"""A site's audit file: JSON lines that are appended and never changed.

Every answer of this package's executor has two lines: one when the executor returns it, and one when FLARE is about to
send it, after the last filter. An answer of another executor has only the second line.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import pydantic

from fdg_plugins.errors import DataError, first_problem
from fdg_plugins.messages import Checked, Loss
from fdg_plugins.storage import locked

AUDIT_FILE = "fdg_audit.jsonl"
NOT_SENT = "not sent"


class TensorEntry(Checked):
    """An array that left: its part of the answer, name, shape, dtype, size in bytes, L2 norm (null: not finite)."""

    part: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    norm: Loss


class FilterEntry(Checked):
    """A filter that the answer passed: its class path, and its source, the ``site`` or the ``job``."""

    filter: str
    source: str


class AuditLine(Checked):
    """The contents of one answer that left a site or was about to.

    ``stage``: ``returned`` by the executor to its caller, or about to be ``sent`` after all filters. ``id`` is the same
    in both lines of one answer. ``round`` is counted from 0, as on the wire; None if the answer names no round.
    ``bytes`` is the total size of the arrays. ``values`` holds all other values by their path in the answer; ``others``
    holds the types of objects that could not be inspected. ``filters`` is None if FLARE did not tell.
    ``config_sha256`` is the digest of the job's site config; None if there is no such file.
    """

    version: Literal[2] = 2
    stage: Literal["returned", "sent"]
    id: str
    time: str
    site: str
    job: str
    task: str
    round: int | None
    return_code: str
    kind: str
    bytes: int
    tensors: tuple[TensorEntry, ...]
    values: dict[str, bool | int | float | str | None]
    others: dict[str, str]
    filters: tuple[FilterEntry, ...] | None
    config_sha256: str | None
    versions: dict[str, str]


class BrokenLine(NamedTuple):
    """A line of the file that is not a valid :class:`AuditLine`: its number, counted from 1, and the reason."""

    number: int
    reason: str


def append_line(path: Path, line: AuditLine, *, durable: bool = True) -> None:
    """Append ``line`` to the file, which is readable by its owner only; when this returns, the line is on disk.

    A line that need not be ``durable`` may be lost if the machine fails. Raises ``DataError`` if writing fails; a
    partly written line is then removed if possible.
    """
    content = line.model_dump_json().encode() + b"\n"
    try:
        # The folder is the site's own workspace. A missing file is created, a missing folder is not.
        with locked(path, private=True) as handle:  # two jobs of one site write to the same file
            _append(handle, content, durable)
    except OSError as error:
        reason = f"cannot be written: {error.strerror}."
        raise DataError(f"audit file {path} {reason}", public=f"the audit {reason}") from error


def _append(handle: int, content: bytes, durable: bool) -> None:
    size = os.fstat(handle).st_size
    torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"  # a crash in the middle of the last line
    try:
        with os.fdopen(handle, "ab", closefd=False) as file:
            file.write(b"\n" + content if torn else content)
        if durable:
            os.fsync(handle)
    except OSError:
        with suppress(OSError):
            os.ftruncate(handle, size)
        raise


def audit_entries(path: Path) -> Iterator[AuditLine | BrokenLine]:
    """Yield the lines of an audit file in order; for an invalid line, its number and the reason.

    A crash can leave an incomplete line; its answer did not leave. Raises ``OSError`` if the file cannot be read.
    """
    with path.open("rb") as file:
        for number, text in enumerate(file, start=1):
            try:
                yield AuditLine.model_validate_json(text)
            except pydantic.ValidationError as error:
                is_json = error.errors(include_url=False)[0]["type"] != "json_invalid"
                cut = "it is not valid JSON: cut off by a crash, before its answer left, or changed"
                yield BrokenLine(number, first_problem(error).rstrip(".") if is_json else cut)


def read_audit(path: Path) -> list[AuditLine]:
    """Return the valid lines of an audit file in order; raise ``OSError`` if the file cannot be read."""
    return [entry for entry in audit_entries(path) if isinstance(entry, AuditLine)]


def shown_lines(lines: Iterable[AuditLine]) -> list[AuditLine]:
    """Return one line for every answer, in file order: the ``sent`` line if it was sent, else the ``returned`` line.

    An answer that the executor returned may never be sent: for a caller other than FLARE's runner, an aborted task, a
    failed filter, or a crash.
    """
    kept = list(lines)
    sent = {line.id for line in kept if line.stage == "sent"}
    return [line for line in kept if line.stage == "sent" or line.id not in sent]
