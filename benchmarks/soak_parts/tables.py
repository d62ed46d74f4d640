# SPDX-License-Identifier: Apache-2.0
"""The findings of a soak as a Markdown table."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from soak_parts.flatness import MOST_BYTES, Finding
from soak_parts.rows import RoundRow

TITLES = {
    "pss": "memory (PSS)",
    "files": "file descriptors",
    "threads": "threads",
    "cpu_seconds": "processor seconds per round",
    "seconds": "seconds per round",
    "rest": "disk: everything else",
    "logs": "disk: logs",
    "audit": "disk: audit",
    "events": "disk: TensorBoard's events",
    "record": "disk: results and checkpoints",
}


def table(findings: Sequence[Finding]) -> str:
    """Return a row for each quantity and kind of process: the median, and the largest value beside its limit."""
    groups: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        key = finding.series.key
        groups[key.quantity, owner_of(key.participant, key.role)].append(finding)
    lines = ["| quantity | whose | participants | median | largest growth | limit | |", "|---" * 7 + "|"]
    lines += [_row(quantity, owner, found) for (quantity, owner), found in groups.items()]
    return "\n".join(lines)


def machine_line(rows: Sequence[RoundRow]) -> str:
    """Return how long the same work took in the first and in the last fifth of the rounds: the other load."""
    fifth = max(1, len(rows) // 5)
    parts = [
        f"{1000 * np.nanmedian([row.work_cpu for row in part]):.0f} ms of the processor in "
        f"{1000 * np.nanmedian([row.work_seconds for row in part]):.0f} ms"
        for part in (rows[:fifth], rows[-fifth:])
    ]
    return f"the same work took {parts[0]} in the first fifth of the rounds, {parts[1]} in the last"


def owner_of(participant: str, role: str) -> str:
    """Return whose process or folder it is in words: the server's, any site's, a person's, or that of all."""
    if role == "submit":
        return "person, submit"
    owner = participant if participant in ("all", "server", "temporary") else "sites"
    return f"{owner}, {role}" if role else owner


def _row(quantity: str, owner: str, found: Sequence[Finding]) -> str:
    worst = max(found, key=lambda finding: finding.value)
    median = text_of(quantity, sorted(finding.series.median for finding in found)[len(found) // 2])
    cells = [TITLES[quantity], owner, str(len(found)), median, _growth(quantity, worst.value)]
    cells += [_growth(quantity, worst.limit), "holds" if worst.holds else f"above: {worst.series.key.participant}"]
    return f"| {' | '.join(cells)} |"


def _growth(quantity: str, value: float) -> str:
    return f"{value:,.0f} bytes per round" if quantity in MOST_BYTES else f"{100 * value:+.1f} %"


def text_of(quantity: str, value: float) -> str:
    """Return a value with its unit."""
    if quantity in ("pss", *MOST_BYTES):
        return f"{value / 2**20:,.1f} MiB"
    return f"{value:.3f} s" if "seconds" in quantity else f"{value:.0f}"
