# SPDX-License-Identifier: Apache-2.0
"""Updates that are written to files as they arrive over the real wire: the same model, and nothing left of them."""

import tempfile
import time
from pathlib import Path

import pytest
import torch

from fdg_plugins.record.run_files import LAST_FILE
from fdg_plugins.storage import load_tensors
from fdg_plugins.training.global_model import count_bytes

from .conftest import JOB_TIMEOUT_S, Federation, change_protocol

TEMPORARY = Path(tempfile.gettempdir())


def most_at_a_time(federation: Federation, job: str) -> int:
    """Return how many updates lay in files at one time, until the job has ended."""
    most, deadline = 0, time.monotonic() + JOB_TIMEOUT_S
    while not federation.meta(job)["status"].startswith("FINISHED"):
        most = max(most, len(list(TEMPORARY.glob(f"nvflare_tensor_offload_{job}_*/*"))))
        assert time.monotonic() < deadline, federation.log(job=job)[-3000:]
        time.sleep(0.02)
    return most


def last_model(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = folder.rglob(LAST_FILE)
    return load_tensors(file)


@pytest.mark.nightly
def test_updates_in_files_make_the_model_of_those_in_memory_and_their_files_go_with_the_round(
    federation: Federation, job: Path, tmp_path: Path
) -> None:
    change_protocol(job, rounds=3)
    plain = federation.record_of(federation.session("lead").submit_job(str(job)), tmp_path / "memory")
    change_protocol(job, enable_tensor_disk_offload=True)
    job_id = federation.session("lead").submit_job(str(job))
    most = most_at_a_time(federation, job_id)
    record = federation.record_of(job_id, tmp_path / "files")
    expected, found = last_model(tmp_path / "memory"), last_model(tmp_path / "files")
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert record.evaluations == plain.evaluations
    sources = len(record.sources)
    assert [finished.bytes_in_files for finished in record.rounds] == [sources * count_bytes(expected)] * 3
    assert [finished.bytes_in_files for finished in plain.rounds] == [0] * 3
    assert 0 < most <= sources, "those of one round"
    assert not list(TEMPORARY.glob(f"nvflare_tensor_offload_{job_id}_*"))
    (log,) = (tmp_path / "files").rglob("log.txt")
    assert f"updates are written to {TEMPORARY / 'nvflare_tensor_offload_'}{job_id}_" in log.read_text(encoding="utf-8")
