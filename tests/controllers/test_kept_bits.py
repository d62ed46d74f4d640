# SPDX-License-Identifier: Apache-2.0
"""The headline methods give the bits that they gave before: three rounds of each against hashes that were kept.

A hash changes only with the order of operations, and only on purpose: then ``kept_hashes.json`` says so in the commit
that changes it. The hashes are those of the versions in ``constraints.txt``, in arithmetic that no processor changes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.controllers import kept_bits

ROOT = Path(__file__).parents[2]
KEPT = json.loads(Path(__file__).with_name("kept_hashes.json").read_text(encoding="utf-8"))
TIMEOUT_S = 600


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The hashes of the models, from a process that computes plainly."""
    command = [sys.executable, "-m", kept_bits.__name__, str(tmp_path_factory.mktemp("kept")), *KEPT["sha256"]]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FDG_")}
    environment = {**inherited, **kept_bits.PLAIN, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.skipif(
    torch.__version__.partition("+")[0] != KEPT["torch"], reason="the hashes were kept with another version of torch"
)
@pytest.mark.parametrize("method", KEPT["sha256"])
def test_three_rounds_have_the_bits_that_were_kept(method: str, hashes: dict[str, str]) -> None:
    assert hashes[method] == KEPT["sha256"][method]


def test_the_hashes_tell_methods_apart() -> None:
    # FedNova is FedAvg here: all sites take the same number of steps.
    assert len(set(KEPT["sha256"].values())) == len(KEPT["sha256"]) - 1
