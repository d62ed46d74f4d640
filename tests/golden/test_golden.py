# SPDX-License-Identifier: Apache-2.0
"""Golden bits: models, server state and record of every method are those of version 0.2.0.

A hash changes only on purpose, in a commit of its own that says why: ``python -m tests.golden.runs --write``, in the
environment that ``PLAIN`` describes. The hashes are those of the versions in ``constraints.txt``.
"""

import json
import sys
from pathlib import Path

import pytest
import torch

from tests.golden import runs
from tests.processes import printed_by

ROOT = Path(__file__).parents[2]
KEPT = json.loads(runs.HASHES.read_text(encoding="utf-8"))

pytestmark = pytest.mark.skipif(
    torch.__version__.partition("+")[0] != KEPT["torch"], reason="the hashes are those of another version of torch"
)


def found(folder: Path, *names: str) -> dict[str, dict[str, str]]:
    """Return the hashes of runs, from a process that computes plainly."""
    printed = printed_by(sys.executable, "-m", runs.__name__, folder, *names, **runs.PLAIN, PYTHONPATH=str(ROOT))
    answer: dict[str, dict[str, str]] = json.loads(printed.splitlines()[-1])
    return answer


def test_golden_quick(tmp_path: Path) -> None:
    assert found(tmp_path, *runs.QUICK) == {name: KEPT["runs"][name] for name in runs.QUICK}


@pytest.mark.slow
def test_golden_all(tmp_path: Path) -> None:
    assert found(tmp_path, *runs.RUNS) == KEPT["runs"]


def test_a_resumed_run_has_the_hashes_of_an_unbroken_one() -> None:
    names = [name for name in runs.RUNS if name.startswith(runs.RESUMED)]
    assert [KEPT["runs"][name] for name in names] == [KEPT["runs"][name.removeprefix(runs.RESUMED)] for name in names]
