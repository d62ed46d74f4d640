# SPDX-License-Identifier: Apache-2.0
"""Who may do what: FLARE's authorization with the policies that were provisioned, and ours on top."""

import time
from pathlib import Path

import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError

from tests.processes import command_line

from .conftest import COMMAND_TIMEOUT_S, JOB_TIMEOUT_S, Federation, change_protocol


def bring_code(job: Path) -> None:
    """Give the job a custom folder with code."""
    (job / "app_site" / "custom").mkdir()
    (job / "app_site" / "custom" / "intruder.py").write_text("LOADED = True\n", encoding="utf-8")


def test_an_org_admin_may_not_submit_a_job(federation: Federation, job: Path) -> None:
    before = {path.name for path in (federation.folder / "server" / "jobs-storage").iterdir()}
    with pytest.raises(AuthorizationError):
        federation.session("orgadmin").submit_job(str(job))
    assert {path.name for path in (federation.folder / "server" / "jobs-storage").iterdir()} == before


def test_a_job_that_brings_code_is_refused_where_its_submitter_may_not_bring_any(
    federation: Federation, job: Path
) -> None:
    bring_code(job)
    submitted = federation.session("lead").submit_job(str(job))
    assert federation.wait_for(submitted).status != "FINISHED:COMPLETED"
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while "BYOC not permitted" not in (said := f"{federation.meta(submitted)}{federation.log()}"):
        assert time.monotonic() < deadline, said[-3000:]  # FLARE says the reason after it has ended the job
        time.sleep(0.2)
    assert not list(federation.folder.rglob("intruder.py"))


def test_a_job_is_aborted_by_its_submitter_and_not_by_another_organisations_admin(
    federation: Federation, job: Path
) -> None:
    change_protocol(job, rounds=10_000)
    job_id = federation.session("lead").submit_job(str(job))
    federation.wait_until_running(job_id, "round 1")

    with pytest.raises(AuthorizationError):
        federation.session("orgadmin").abort_job(job_id)
    assert federation.meta(job_id)["status"] == "RUNNING"

    federation.session("lead").abort_job(job_id)
    assert federation.wait_for(job_id).status == "FINISHED:ABORTED"
    deadline = time.monotonic() + JOB_TIMEOUT_S
    while left := [process for process in federation.processes() if job_id in command_line(process)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.5)
