# SPDX-License-Identifier: Apache-2.0
"""Jobs without code in a provisioned federation: one that runs, and those that a participant's list refuses."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .conftest import JOB_ID, SERVER_CONFIG, Federation, edit_json

EXECUTOR = "fdg_plugins.executors.SiteExecutor"


@contextmanager
def without(federation: Federation, site: str, entry: str) -> Iterator[None]:
    """Take one entry off a site's list for a while; FLARE reads the list at the start of every job."""
    path = federation.folder / site / "local" / "resources.json"
    before = path.read_bytes()
    edit_json(path, lambda resources: resources["class_allow_list"].remove(entry))
    yield
    path.write_bytes(before)


def test_a_job_without_code_runs_to_its_end_and_its_results_can_be_downloaded(
    federation: Federation, job: Path, tmp_path: Path
) -> None:
    submitted = federation.nvflare("lead", "submit", "-j", str(job))
    found = JOB_ID.search(submitted.output)
    assert submitted.returncode == 0, submitted.output
    assert found, submitted.output
    job_id = found.group()
    record = federation.record_of(job_id, tmp_path / "results")
    assert not federation.meta(job_id).get("byoc")
    assert record.status == "finished"
    assert not record.stand_in
    assert record.sources == ("cartoon", "photo", "sketch")
    assert record.held_out == ("art_painting",)
    assert len(record.rounds) == 2
    assert all(round_.aggregation is not None for round_ in record.rounds)
    (model,) = (tmp_path / "results").rglob("global_model.safetensors")
    assert model.stat().st_size > 0
    (log,) = (tmp_path / "results").rglob("log.txt")
    assert "list of allowed classes" not in log.read_text(encoding="utf-8"), "it is the least one at every participant"


def test_a_job_is_refused_if_one_site_does_not_allow_its_components(federation: Federation, job: Path) -> None:
    with without(federation, "sketch", EXECUTOR):
        job_id = federation.session("lead").submit_job(str(job))
        ended = federation.wait_for(job_id)
    assert ended.status != "FINISHED:COMPLETED"
    refusals = f"Component '{EXECUTOR}'"
    assert refusals in federation.log("sketch") + federation.log("sketch", job_id)
    assert "is not in allow_list" in federation.log("sketch") + federation.log("sketch", job_id)
    assert refusals not in federation.log("photo", job_id)


def test_a_callable_of_ours_that_is_no_component_is_refused(federation: Federation, job: Path) -> None:
    path = "fdg_plugins.storage.Path"
    component = {"id": "intruder", "path": path, "args": {}}
    edit_json(job / SERVER_CONFIG, lambda config: config["components"].append(component))
    ended = federation.wait_for(federation.session("lead").submit_job(str(job)))
    assert ended.status != "FINISHED:COMPLETED"
    log = ended.log + federation.log()
    assert f"Component '{path}'" in log
    assert "is not in allow_list" in log
