# SPDX-License-Identifier: Apache-2.0
"""The result of a check: one line for the user, and its status."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from fdg_plugins.errors import FDGError


class Status(StrEnum):
    """``ok``; ``warning``: a run may be slow, or not be what the user expects; ``problem``: a run fails."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """The result of one check: its status, its name, and what was found."""

    status: Status
    check: str
    text: str


ok = partial(Finding, Status.OK)
warning = partial(Finding, Status.WARNING)
problem = partial(Finding, Status.PROBLEM)


def findings_of(checks: Mapping[str, Callable[[], Iterable[Finding]]]) -> tuple[Finding, ...]:
    """Return what the checks find; one that fails costs no other, and why it failed is a problem."""
    findings: list[Finding] = []
    for name, look in checks.items():
        try:
            findings.extend(look())  # also what it had found before a failure
        except (FDGError, ImportError, OSError, RuntimeError) as error:  # of torch or a driver, too
            text = f"cannot be checked: {type(error).__name__}: {' '.join(str(error).split())}"
            findings.append(problem(name, text))
    return tuple(findings)


def gibibytes(count: float) -> str:
    """Return a number of bytes in GiB, with one decimal."""
    return f"{count / 2**30:.1f} GiB"
