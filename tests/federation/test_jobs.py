# SPDX-License-Identifier: Apache-2.0
"""Jobs without code in a provisioned federation: they run, or are refused by a participant's list."""

import json
from pathlib import Path

from tests.federation.conftest import PROTOCOL, Federation, change_protocol, local_files
from tests.processes import FDG, printed_by

EXECUTOR = "fdg_plugins.executors.SiteExecutor"


def test_job_without_code_runs_what_is_installed(federation: Federation, tmp_path: Path) -> None:
    printed_by(FDG, "export", "job", "fedproto", tmp_path, **federation.plugins)
    job = tmp_path / "pacs_fedproto"
    assert not list(job.rglob("custom"))
    change_protocol(job, **{**PROTOCOL, "model": "patchnet"})
    job_id = federation.session("lead").submit_job(str(job))
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
