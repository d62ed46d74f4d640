# SPDX-License-Identifier: Apache-2.0
"""The result of a check: one line for the user, and its status."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from fdg_plugins.errors import FDGError

# What loading a broken torch, torchvision or driver raises, and what this package does.
FAILURES = (FDGError, ImportError, OSError, RuntimeError)


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


def _finding(status: Status, check: str, text: str) -> Finding:
    return Finding(check, status, text)


ok = partial(_finding, Status.OK)
warning = partial(_finding, Status.WARNING)
problem = partial(_finding, Status.PROBLEM)


def worst(findings: Iterable[Finding]) -> Status:
    """Return the worst status of ``findings``; ``ok`` if there are none."""
    return max((finding.status for finding in findings), key=list(Status).index, default=Status.OK)


def guarded(check: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what ``look`` finds; if it fails, what it had found and why it failed, as a problem."""
    findings: list[Finding] = []
    try:
        for finding in look():
            findings.append(finding)  # one by one, to keep those before a failure
    except FAILURES as error:
        findings.append(problem(check, f"cannot be checked: {type(error).__name__}: {' '.join(str(error).split())}"))
    return findings


def gibibytes(count: float) -> str:
    """Return a number of bytes in GiB, with one decimal."""
    return f"{count / 2**30:.1f} GiB"
