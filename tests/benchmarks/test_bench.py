# SPDX-License-Identifier: Apache-2.0
"""Every case of the benchmarks runs at its quick size and gives numbers."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "benchmarks" / "bench.py"


@pytest.mark.slow
def test_every_case_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH), "--quick", "--to", str(tmp_path / "table.md")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "nan" not in table
