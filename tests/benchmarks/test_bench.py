# SPDX-License-Identifier: Apache-2.0
"""The benchmarks at their quick size, and the soak: as many rounds as ``SOAK_ROUNDS`` says, held to its criteria."""

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
import soak
from cases import CASES
from soak_parts.federation import Options
from soak_parts.flatness import SHORTEST, WARM_UP, findings
from soak_parts.tables import table

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


ROUNDS = int(os.environ.get("SOAK_ROUNDS", "500"))
KILL_EVERY = 50


@pytest.mark.nightly
def test_a_federation_stays_as_it_is_over_many_rounds_kills_and_a_restart(tmp_path: Path) -> None:
    restart_at = ROUNDS // 2 + KILL_EVERY // 2
    assert ROUNDS - restart_at >= WARM_UP + SHORTEST, "the server's second job must be long enough to be judged"
    found = soak.measure(Options(ROUNDS, KILL_EVERY, restart_at), tmp_path / "federation")

    assert [row.round for row in found.rounds] == list(range(1, ROUNDS + 1))
    assert found.about["resumed_after"] in ([restart_at], [restart_at + 1]), "at most one round more than was seen"
    killed = [fault.participant for fault in found.faults if fault.what == "killed"]
    assert len(killed) == (ROUNDS - 1) // KILL_EVERY + 1, "sites, and the server once"
    assert [fault.participant for fault in found.faults if fault.what == "started"].count("server") == 1
    assert set(found.rounds[-1].sites.split()) == {"cartoon", "photo", "sketch"}, "who was killed has come back"
    assert not found.rounds[-1].failures
    assert all(files == [] for files in found.about["left"].values()), found.about["left"]

    judged = findings(found)
    print(table(judged))  # noqa: T201 - shown by pytest if the test fails
    assert {"pss", "files", "threads", "cpu_seconds", "seconds", "rest"} <= {one.series.key.quantity for one in judged}
    assert all(finding.holds for finding in judged), table(judged)
