# SPDX-License-Identifier: Apache-2.0
"""``nvflare simulator -gpu``: every site's training process sees the GPU of its group, which may hold many sites.

The GPUs are listed by an ``nvidia-smi`` of the test's; the sites compute on the CPU.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.fake_gpus import fake_nvidia_smi
from tests.processes import WORKER

from .conftest import JOBS
from .test_bare_command import TOY

TIMEOUT_S = 600


def simulate(folder: Path, data_root: Path, gpus: str) -> tuple[int, str, Counter[str | None]]:
    """Run a job with ``-gpu``; return exit code, log, and how many training processes have seen which GPUs."""
    own = {**TOY, "FDG_DATA_ROOT": str(data_root), "FDG_DEVICE": "cpu", "FDG_THREADS": "1", "FDG_ISOLATE": "true"}
    path = fake_nvidia_smi(folder / "bin", [16384, 16384])
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FDG_", "CUDA_"))}
    program = str(Path(sys.executable).with_name("nvflare"))
    command = [program, "simulator", str(JOBS / "pacs_fedavg"), "-gpu", gpus]
    seen: dict[int, str | None] = {}
    deadline = time.monotonic() + TIMEOUT_S
    with (folder / "log.txt").open("wb") as log:
        run = subprocess.Popen(
            command,
            cwd=folder,
            env={**clean, **own, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        while run.poll() is None:
            seen |= visible_to_workers(run.pid)
            assert time.monotonic() < deadline
            time.sleep(0.1)
    return run.returncode, (folder / "log.txt").read_text(encoding="utf-8"), Counter(seen.values())


def visible_to_workers(pid: int) -> dict[int, str | None]:
    """Return ``CUDA_VISIBLE_DEVICES`` of each training process below process ``pid``, by its id.

    A process that one of them forks to execute a program has its command line until then, and is none.
    """
    found: dict[int, str | None] = {}
    try:
        workers = {one.pid: one for one in psutil.Process(pid).children(recursive=True) if WORKER in one.cmdline()}
        for number, process in workers.items():
            if process.ppid() not in workers:
                found[number] = process.environ().get("CUDA_VISIBLE_DEVICES")
    except psutil.Error:
        pass  # it has ended meanwhile
    return found


@pytest.mark.nightly
@pytest.mark.parametrize(("gpus", "expected"), [("0,0,1,1", {"0": 2, "1": 2}), ("0,0,0,0", {"0": 4})])
def test_every_training_process_sees_the_gpu_of_its_group_alone(
    tmp_path: Path, data_root: Path, gpus: str, expected: dict[str, int]
) -> None:
    code, log, seen = simulate(tmp_path, data_root, gpus)
    assert code == 0, log
    assert seen == expected
