# SPDX-License-Identifier: Apache-2.0
"""The result of a check: one line for the user, and its status."""

from collections.abc import Callable, Iterable
from enum import StrEnum
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


def ok(check: str, text: str) -> Finding:
    """Return that what was looked at is as it should be."""
    return Finding(check, Status.OK, text)


def warning(check: str, text: str) -> Finding:
    """Return that a run may not be what one thinks it is, or be slow."""
    return Finding(check, Status.WARNING, text)


def problem(check: str, text: str) -> Finding:
    """Return that a run fails, or a kit lets a job do harm."""
    return Finding(check, Status.PROBLEM, text)


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
        reason = " ".join(str(error).split()) or type(error).__name__
        findings.append(problem(check, f"cannot be checked: {type(error).__name__}: {reason}"))
    return findings


def gibibytes(count: float) -> str:
    """Return a number of bytes in GiB, with one decimal."""
    return f"{count / 2**30:.1f} GiB"
