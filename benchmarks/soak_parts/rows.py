# SPDX-License-Identifier: Apache-2.0
"""What a soak measures, and the files that keep it: a CSV for rounds, processes, disk and faults each.

Rounds count from 1. Times are seconds since the first sample unless stated otherwise, sizes are bytes.
"""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar, get_type_hints

from fdg_plugins.storage import read_json, write_bytes, write_json

ABOUT_FILE = "about.json"
DECIMALS = 4


class RoundRow(NamedTuple):
    """One complete round. ``at``: when its end was seen, NaN if only that of the next was.

    ``seconds``: its duration in the record of the run. ``sites``: the sources whose update was used; ``failures``: the
    sites without a usable answer, held-out ones included; both are names with blanks between. ``work_cpu`` and
    ``work_seconds``: processor seconds and seconds of the same work at the end of every round, which says how fast the
    machine was by then.
    """

    round: int
    at: float
    seconds: float
    sites: str
    failures: str
    work_cpu: float
    work_seconds: float


class ProcessRow(NamedTuple):
    """One process at the end of a round.

    ``role``: parent (FLARE's server or client), job (its process for the job), training, or submit (``fdg submit``,
    which follows the run). ``pss``: proportional set
    size, in which shared pages count in parts. ``cpu_seconds``: of user and system, since the process began.
    """

    round: int
    participant: str
    role: str
    pid: int
    pss: int
    files: int
    threads: int
    cpu_seconds: float


class DiskRow(NamedTuple):
    """The size of what one participant's folder holds at the end of a round, by kind; ``number``: of all its files.

    ``record``: results and checkpoints, which hold the record of every round; ``rest``: everything without a name here.
    """

    round: int
    participant: str
    logs: int
    audit: int
    events: int
    record: int
    rest: int
    number: int


class FaultRow(NamedTuple):
    """What was done to the federation, and after which round. ``what``: killed or started."""

    round: int
    at: float
    what: str
    participant: str


Row = TypeVar("Row", RoundRow, ProcessRow, DiskRow, FaultRow)


def render(rows: Iterable[Row], kind: type[Row]) -> bytes:
    """Return the CSV of ``rows``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(kind._fields)
    writer.writerows([round(value, DECIMALS) if isinstance(value, float) else value for value in row] for row in rows)
    return text.getvalue().encode()


def parse(content: bytes, kind: type[Row]) -> list[Row]:
    """Return the rows that :func:`render` was given, with floats of ``DECIMALS``."""
    types = get_type_hints(kind)
    return [
        kind(**{name: types[name](text) for name, text in row.items()})
        for row in csv.DictReader(io.StringIO(content.decode()))
    ]


class Soak(NamedTuple):
    """All that one run of the soak has measured; ``about``: the machine, the options, and what was left at the end."""

    rounds: list[RoundRow]
    processes: list[ProcessRow]
    disk: list[DiskRow]
    faults: list[FaultRow]
    about: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Write the files of this soak."""
        write_bytes(folder / "rounds.csv", render(self.rounds, RoundRow))
        write_bytes(folder / "processes.csv", render(self.processes, ProcessRow))
        write_bytes(folder / "disk.csv", render(self.disk, DiskRow))
        write_bytes(folder / "faults.csv", render(self.faults, FaultRow))
        write_json(folder / ABOUT_FILE, self.about)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the soak that :meth:`write` has written to ``folder``."""
        return cls(
            parse((folder / "rounds.csv").read_bytes(), RoundRow),
            parse((folder / "processes.csv").read_bytes(), ProcessRow),
            parse((folder / "disk.csv").read_bytes(), DiskRow),
            parse((folder / "faults.csv").read_bytes(), FaultRow),
            dict(read_json(folder / ABOUT_FILE)),
        )
