# SPDX-License-Identifier: Apache-2.0
"""The result of a check: one line for the user, and its status."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Status(StrEnum):
    """``ok``; ``warning``: a run may be slow, or not be what the user expects; ``problem``: a run fails."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """The result of one check: its name, its status, and what was found."""

    check: str
    status: Status
    text: str


def worst(findings: Iterable[Finding]) -> Status:
    """Return the worst status of ``findings``; ``ok`` if there are none."""
    order = list(Status)
    return max((finding.status for finding in findings), key=order.index, default=Status.OK)


def gibibytes(count: float) -> str:
    """Return a number of bytes in GiB, with one decimal."""
    return f"{count / 2**30:.1f} GiB"
