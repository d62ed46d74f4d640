# SPDX-License-Identifier: Apache-2.0
"""What has left a site as a CSV file, for people who read it in a spreadsheet: a row for each tensor and each value.

A spreadsheet runs a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula. Names of tasks, tensors and values
come from jobs, and texts from methods, so each such cell gets an apostrophe in front, which a spreadsheet shows as
text. Numbers that the audit measured stay numbers.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from fdg_plugins.audit.file import NOT_SENT, AuditLine
from fdg_plugins.errors import visible

_ANSWER = ("site", "time", "job", "task", "round", "state", "return_code", "id")
_CONTENT = ("what", "part", "name", "shape", "dtype", "bytes", "l2_norm", "value")
FIELDS = (*_ANSWER, *_CONTENT, "filters", "config_sha256", "versions")
# With the full-width signs, which some spreadsheets read in the same way.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


def audit_csv(lines: Iterable[AuditLine]) -> str:
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
            "state": "sent" if line.stage == "sent" else NOT_SENT,
            "filters": "unknown" if line.filters is None else "; ".join(filters),
            "versions": "; ".join(f"{name} {number}" for name, number in line.versions.items()),
        }
        for row in _contents(line):
            writer.writerow({field: harmless(cell) for field, cell in {**answer, **row}.items()})
    return text.getvalue()


def harmless(cell: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula: numbers as they are, text printable and defused.

    >>> harmless('=HYPERLINK("x")'), harmless(" @SUM(A1)"), harmless(-0.5), harmless("photo")
    ('\\'=HYPERLINK("x")', "' @SUM(A1)", -0.5, 'photo')
    """
    if not isinstance(cell, str):
        return cell
    text = visible(cell)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def _contents(line: AuditLine) -> Iterator[dict[str, Any]]:
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
