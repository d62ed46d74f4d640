# SPDX-License-Identifier: Apache-2.0
"""What a check finds: one line for a person, and whether it is as it should be."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Status(StrEnum):
    """``ok``; ``warning``: a run may not be what one thinks it is, or be slow; ``problem``: a run fails."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """What one check found: what was looked at, whether it is as it should be, and what is there."""

    check: str
    status: Status
    text: str


def worst(findings: Iterable[Finding]) -> Status:
    """Return the worst status of ``findings``; ``ok`` if there are none."""
    order = list(Status)
    return max((finding.status for finding in findings), key=order.index, default=Status.OK)


def gibibytes(count: float) -> str:
    """Return a number of bytes in GiB, with one digit after the point."""
    return f"{count / 2**30:.1f} GiB"
