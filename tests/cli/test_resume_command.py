# SPDX-License-Identifier: Apache-2.0
"""``fdg resume`` against a server that is not there: what it submits, and what it refuses."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from fdg_plugins.cli.resume import SIGNATURE
from tests.cli.session_stubs import JOB, SITES, FakeFlare, Step, check_refusal, job_id, make_person_kit, run

BROKEN = [Step("RUNNING", False)]
CONFIG = Path("app_server/config/config_fed_server.json")


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A person's startup kit."""
    return make_person_kit(tmp_path / "lead")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A copy of a job of the project, which the test may damage."""
    return Path(shutil.copytree(JOB, tmp_path / "job"))


def resume(flare: FakeFlare, monkeypatch: pytest.MonkeyPatch, job: Path, kit: Path, *options: object) -> Result:
    return run(flare, monkeypatch, "resume", job, "--kit", kit, "--run", job_id(0), *options)


def edit(job: Path, **changes: Any) -> None:
    config = json.loads((job / CONFIG).read_text(encoding="utf-8"))
    config["workflows"][0].update(changes)
    (job / CONFIG).write_text(json.dumps(config), encoding="utf-8")


def test_it_submits_the_same_job_told_to_go_on(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = FakeFlare([BROKEN])
    before = {path: path.read_bytes() for path in JOB.rglob("*") if path.is_file()}
    result = resume(flare, monkeypatch, JOB, kit)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"job {job_id(0)}: submitted; it goes on with run {job_id(0)}\n"
    assert flare.controller(0).pop("resume") == job_id(0)
    expected = {
        str(path.relative_to(JOB)): json.loads(path.read_bytes())
        for path in JOB.rglob("*.json")
        if "custom" not in path.relative_to(JOB).parts
    }
    assert flare.submitted == [{**expected, "folder": JOB.name}]
    assert {path: path.read_bytes() for path in JOB.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("option", ["--data-root", "--at-once"])
def test_options_of_a_run_of_this_machine_are_refused(kit: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    flare = FakeFlare([BROKEN])
    result = resume(flare, monkeypatch, JOB, kit, option, "4")
    check_refusal(result, f"{option} is '4', which has no effect on a run in a federation, expected none.")
    assert flare.submitted == []


def test_a_folder_that_flare_has_signed_is_taken_without_the_signatures(
    job: Path, kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (job, job / "app_server"):
        (folder / SIGNATURE).write_text('{"meta.json": "c2lnbmF0dXJl"}', encoding="utf-8")
    flare = FakeFlare([BROKEN])
    assert resume(flare, monkeypatch, job, kit).exit_code == 0
    assert (job / SIGNATURE).exists()


@pytest.mark.parametrize("arguments", [{"args": None}, {"args": {"resume": "another"}}, {"args": {}}])
def test_whatever_the_workflow_had_it_goes_on_with_the_run_that_was_named(
    job: Path, kit: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    edit(job, **arguments)
    flare = FakeFlare([BROKEN])
    assert resume(flare, monkeypatch, job, kit).exit_code == 0
    assert flare.controller(0) == {"resume": job_id(0)}


def test_it_waits_for_the_sites_that_come_back_to_a_restarted_server(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flare = FakeFlare([BROKEN])
    flare.sites = [(), ("photo",), SITES]
    result = resume(flare, monkeypatch, JOB, kit)
    assert (result.exit_code, result.stderr) == (0, "")
    assert flare.sites == [SITES]


@pytest.mark.parametrize("path", ["nvflare.app_common.workflows.fedavg.FedAvg", "other.FederationController"])
def test_a_job_without_our_workflow_is_refused(
    job: Path, kit: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    edit(job, path=path)
    flare = FakeFlare([BROKEN])
    check_refusal(resume(flare, monkeypatch, job, kit), "no workflow is a FederationController")
    assert flare.submitted == []


def test_a_folder_that_is_no_job_is_refused(tmp_path: Path, kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_refusal(resume(FakeFlare([BROKEN]), monkeypatch, tmp_path, kit), "is not a job: it has no meta.json")


def test_a_kit_that_is_none_or_anothers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site" / "startup").mkdir(parents=True)
    (tmp_path / "site" / "startup" / "fed_client.json").write_text("{}", encoding="utf-8")
    for kit in (tmp_path / "nowhere", tmp_path, tmp_path / "site"):
        check_refusal(resume(FakeFlare([BROKEN]), monkeypatch, JOB, kit), f"folder {kit} is not a startup kit of a")


@pytest.mark.parametrize("name", ["", "../up", "42", job_id(0).upper() + "G", job_id(0) + "\n"])
def test_a_job_id_that_is_none_is_refused(kit: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    result = run(FakeFlare([BROKEN]), monkeypatch, "resume", JOB, "--kit", kit, "--run", name)
    check_refusal(result, f"job id is {name!r}, expected one as FLARE gives them")


def test_a_job_that_still_runs_is_refused(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = FakeFlare([[Step()]])
    check_refusal(resume(flare, monkeypatch, JOB, kit), f"job {job_id(0)} still runs (RUNNING)")
    assert flare.submitted == []


def test_a_job_that_has_completed_is_refused(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flare = FakeFlare([[Step("FINISHED:COMPLETED", False)]])
    check_refusal(
        resume(flare, monkeypatch, JOB, kit), f"job {job_id(0)} has completed: there is nothing to go on with."
    )
    assert flare.submitted == []
