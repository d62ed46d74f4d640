# SPDX-License-Identifier: Apache-2.0
"""Jobs without code in a provisioned federation: one that runs, and those that a participant's list refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

from .conftest import (
    COMMAND_TIMEOUT_S,
    JOB_ID,
    PROTOCOL,
    Federation,
    change_protocol,
    local_files,
)

EXECUTOR = "fdg_plugins.executors.SiteExecutor"


def test_job_without_code_runs_what_is_installed(federation: Federation, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("fdg")), "export", "job", "fedproto", str(tmp_path)]
    subprocess.run(command, env={**os.environ, **federation.plugins}, check=True, timeout=COMMAND_TIMEOUT_S)
    job = tmp_path / "pacs_fedproto"
    assert not list(job.rglob("custom"))
    change_protocol(job, **{**PROTOCOL, "model": "patchnet"})
    submitted = federation.nvflare("lead", "submit", "-j", str(job))
    found = JOB_ID.search(submitted.output)
    assert submitted.returncode == 0, submitted.output
    assert found, submitted.output
    job_id = found.group()
    record = federation.record_of(job_id, tmp_path / "results")
    assert not federation.meta(job_id).get("byoc")
    assert (record.status, record.stand_in, len(record.rounds)) == ("finished", False, 2)
    assert (record.sources, record.held_out) == (("cartoon", "photo", "sketch"), ("art_painting",))
    assert record.method.objective == {"name": "proto", "strength": 1.0}
    for finished in record.rounds:
        assert (finished.failures, finished.refused_reports, finished.reason) == ({}, {}, None)
    (model,) = (tmp_path / "results").rglob("global_model.safetensors")
    assert model.stat().st_size > 0
    (log,) = (tmp_path / "results").rglob("log.txt")
    assert "list of allowed classes" not in log.read_text(encoding="utf-8"), "it is the least one at every participant"


def test_a_job_is_refused_if_one_site_does_not_allow_its_components(federation: Federation, job: Path) -> None:
    resources = json.loads((federation.folder / "sketch" / "local" / "resources.json").read_text(encoding="utf-8"))
    resources["class_allow_list"].remove(EXECUTOR)  # FLARE reads the list at the start of every job
    with local_files(federation, "sketch", {"resources.json": json.dumps(resources)}):
        job_id = federation.session("lead").submit_job(str(job))
        ended = federation.wait_for(job_id)
    assert ended.status != "FINISHED:COMPLETED"
    refusals = f"Component '{EXECUTOR}'"
    assert refusals in federation.log("sketch") + federation.log("sketch", job_id)
    assert "is not in allow_list" in federation.log("sketch") + federation.log("sketch", job_id)
    assert refusals not in federation.log("photo", job_id)
