# SPDX-License-Identifier: Apache-2.0
"""Who is there, under which policies and with what rights: FLARE's authorization as provisioned, and ours on top."""

import subprocess
from pathlib import Path

import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError

from tests.federation.conftest import Federation, change_protocol, until
from tests.processes import command_line


def test_job_with_code_is_refused(federation: Federation, job: Path) -> None:
    (job / "app_site" / "custom").mkdir()
    (job / "app_site" / "custom" / "intruder.py").write_text("LOADED = True\n", encoding="utf-8")
    submitted = federation.session("lead").submit_job(str(job))
    assert federation.wait_for(submitted).status != "FINISHED:COMPLETED"
    # FLARE says the reason after it has ended the job.
    until(lambda: "BYOC not permitted" in f"{federation.meta(submitted)}{federation.log()}", "no reason was given")
    assert not list(federation.folder.rglob("intruder.py"))


def test_another_organisations_admin_may_neither_submit_a_job_nor_abort_one(federation: Federation, job: Path) -> None:
    with pytest.raises(AuthorizationError):
        federation.session("orgadmin").submit_job(str(job))
    change_protocol(job, rounds=10_000)
    job_id = federation.session("lead").submit_job(str(job))
    federation.wait_until_running(job_id, "round 1")

    with pytest.raises(AuthorizationError):
        federation.session("orgadmin").abort_job(job_id)
    assert federation.meta(job_id)["status"] == "RUNNING"

    federation.session("lead").abort_job(job_id)
    assert federation.wait_for(job_id).status == "FINISHED:ABORTED"
    until(lambda: not any(job_id in command_line(one) for one in federation.processes()), "processes are left")


def test_server_and_sites_have_no_package_of_the_lab(federation: Federation) -> None:
    asks = "from importlib.util import find_spec as f; print([n for n in ('pandas', 'matplotlib', 'sklearn') if f(n)])"
    found = subprocess.run([federation.commands / "python", "-c", asks], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
    started = next(process for process in federation.processes() if "server" in command_line(process))
    assert str(federation.commands) in command_line(started) + str(started.environ().get("PATH"))
