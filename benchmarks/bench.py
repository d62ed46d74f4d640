# SPDX-License-Identifier: Apache-2.0
"""Ours against a reference, side by side on this machine: seconds, bytes and their ratios, as one Markdown table.

    python benchmarks/bench.py                    # everything; minutes
    python benchmarks/bench.py --only solver      # one case, or several
    python benchmarks/bench.py --quick            # tiny sizes: whether it runs, no measurement
    python benchmarks/bench.py --to FILE.md       # the table into a file as well

Linux only, for the peak memory. The two sides of a row take turns in one process and use the same number of threads;
given are medians, and their ratio. Each case has a process of its own, whose peak memory is in the last column (of
"memory", whose two sides are processes themselves, it is that of the process which starts them); quick ones share one.
"""

import argparse
import importlib.metadata
import math
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from cases import CASES
from cases.measure import MIB, Row, in_new_process, process_peak

COLUMNS = ("case", "ours", "reference", "ratio", "goal", "peak memory")
PACKAGES = ("torch", "nvflare", "numpy")


class Measured(NamedTuple):
    """The rows of one case, and the peak memory in bytes of the process that measured them."""

    rows: list[Row]
    peak: int


def measure(case: str, quick: bool) -> Measured:
    """Run a case in this process."""
    rows = CASES[case](quick)
    return Measured(rows, process_peak())


def line(cells: Sequence[str]) -> str:
    """Return a line of the table in Markdown."""
    return f"| {' | '.join(cells)} |"


def machine() -> list[str]:
    """Return on what was measured, a line each."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return [
        f"- CPU: {_cpu_model()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads",
        f"- Python {platform.python_version()}, {versions}",
    ]


def number(value: float) -> str:
    """Return a number with three significant digits, without an exponent from a thousandth to a million."""
    rounded = float(f"{value:.2e}")
    if rounded == 0 or not math.isfinite(rounded):
        return f"{rounded:g}"
    magnitude = math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(2 - magnitude, 0)}f}" if -4 < magnitude < 6 else f"{rounded:.2e}"


def _cells(row: Row, peak: int) -> tuple[str, str, str, str, str, str]:
    ratio = "" if row.ratio is None else number(row.ratio)
    goal = "" if row.goal is None else f"{row.goal.text}: {'reached' if row.reached else 'missed'}"
    return row.case, _quantity(row.ours, row), _quantity(row.reference, row), ratio, goal, f"{peak / MIB:.0f} MiB"


def _quantity(value: float | None, row: Row) -> str:
    if value is None:
        return ""
    if row.unit == "s":
        return f"{number(value)} s" if value >= 1 else f"{number(value * 1e3)} ms"
    if row.unit == "B":
        return f"{number(value / MIB)} MiB"
    return number(value)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def main(arguments: list[str] | None = None) -> None:
    """Measure the cases asked for, print the table, write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: whether it runs, no measurement")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(CASES), default=list(CASES))
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the table to this file as well")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch, in every case")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler looks for GPUs, and says so if there is none
    lines = [line(COLUMNS), line(("---",) + ("---:",) * 3 + ("---", "---:"))]
    for case in options.only:
        print(f"{case} ...", file=sys.stderr, flush=True)  # noqa: T201
        measured = measure(case, True) if options.quick else in_new_process(measure, case, False)
        lines += [line(_cells(row, measured.peak)) for row in measured.rows]
        if options.to:  # what is measured outlives a later case that fails
            options.to.write_text("\n".join(lines) + "\n")
    sizes = ["- Quick sizes: the goals are those of the full sizes, and no verdict here."] if options.quick else []
    text = "\n".join([*lines, "", *sizes, *machine()]) + "\n"
    print(text, end="")  # noqa: T201
    if options.to:
        options.to.write_text(text)


if __name__ == "__main__":
    main()
