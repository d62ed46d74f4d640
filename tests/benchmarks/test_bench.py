# SPDX-License-Identifier: Apache-2.0
"""Every case of the benchmarks runs at its quick size and gives numbers."""

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
from cases import CASES

BENCH = Path(__file__).parents[2] / "benchmarks" / "bench.py"
# Each of their rows is one or two runs of FLARE's simulator, or of Flower's, which take most of the time.
OF_JOBS = ("round_overhead", "wire", "whole_job", "one_process", "flower")


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [pytest.param(set(CASES) - set(OF_JOBS), id="calls"), pytest.param(OF_JOBS, id="jobs", marks=pytest.mark.nightly)],
)
def test_every_case_runs(names: Collection[str], tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH), "--quick", "--to", str(tmp_path / "table.md"), "--only", *sorted(names)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "nan" not in table
