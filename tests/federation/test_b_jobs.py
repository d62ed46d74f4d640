# SPDX-License-Identifier: Apache-2.0
"""Jobs without code in a provisioned federation: they run, are refused by a participant's list, or judge models."""

import json
from pathlib import Path

import pytest

from fdg_plugins.audit.file import AUDIT_FILE, read_audit
from fdg_plugins.lab.engine.evaluation import read_result
from fdg_plugins.messages import TASK_SCORE
from fdg_plugins.record.run_files import EVALUATION_FILE
from tests.cli.commands import fdg
from tests.evaluation.finished import finished_run, fitted
from tests.processes import FDG, printed_by

from .conftest import JOB_ID, PROTOCOL, Federation, change_protocol, local_files

EXECUTOR = "fdg_plugins.executors.SiteExecutor"


def test_job_without_code_runs_what_is_installed(federation: Federation, tmp_path: Path) -> None:
    printed_by(FDG, "export", "job", "fedproto", tmp_path, **federation.plugins)
    job = tmp_path / "pacs_fedproto"
    assert not list(job.rglob("custom"))
    change_protocol(job, **{**PROTOCOL, "model": "patchnet"})
    submitted = federation.nvflare("lead", "submit", "-j", str(job))
    found = JOB_ID.search(submitted.stdout)
    assert submitted.returncode == 0, submitted.stdout
    assert found, submitted.stdout
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


@pytest.mark.usefixtures("no_fdg_variables")
def test_sites_that_never_trained_count_the_same_and_those_that_did_are_left_out(
    federation: Federation, data_root: Path, tmp_path: Path
) -> None:
    runs = [finished_run(tmp_path / name, fitted(data_root, seed)) for seed, name in enumerate(("fedavg", "fedomg"))]
    assert fdg("evaluate", *runs, "--sites", "art_painting,cartoon,sketch", "--to", tmp_path).exit_code == 0
    job = federation.session("lead").submit_job(str(tmp_path / "evaluate"))
    ended = federation.wait_for(job)
    assert (ended.status, ended.meta.get("byoc")) == ("FINISHED:COMPLETED", None), ended.log[-3000:]
    downloaded = federation.nvflare("lead", "download", job, "-o", str(tmp_path / "results"))
    assert downloaded.returncode == 0, downloaded.stdout
    (file,) = (tmp_path / "results").rglob(EVALUATION_FILE)
    there = read_result(file)
    assert fdg("evaluate", *runs, "--data", data_root, "--to", tmp_path / "here").exit_code == 0
    here = read_result(tmp_path / "here" / EVALUATION_FILE)
    assert list(there.sites) == list(here.sites) == ["art_painting", "sketch"]
    assert there.left_out.keys() == {"cartoon"}
    for site, own in there.sites.items():
        for name, scores in own.models.items():
            same = here.sites[site].models[name]
            assert (scores.sums, scores.pairs, scores.counts["confidence"]) == (
                same.sums,
                same.pairs,
                same.counts["confidence"],
            )
            assert scores.withheld == tuple(range(7))  # of classes of 4 images
    lines = [line for line in read_audit(federation.folder / "sketch" / AUDIT_FILE) if line.job == job]
    assert [line.stage for line in lines if line.task == TASK_SCORE] == ["returned", "sent"] * 2
