# SPDX-License-Identifier: Apache-2.0
"""An installed plug-in in a provisioned federation: a job names it and brings no code; an operator may refuse it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import COMMAND_TIMEOUT_S, PROTOCOL, Federation, change_protocol

REFUSING = "photo"


@pytest.fixture
def plugin_job(federation: Federation, tmp_path: Path) -> Path:
    """The job of the plug-in's method and network, as a lead writes it by name."""
    fdg = str(Path(sys.executable).with_name("fdg"))
    command = [fdg, "export", "job", "--method", "fedproto", "--to", str(tmp_path)]
    subprocess.run(command, env={**os.environ, **federation.plugins}, check=True, timeout=COMMAND_TIMEOUT_S)
    job = tmp_path / "pacs_fedproto"
    assert not list(job.rglob("custom"))
    change_protocol(job, **{**PROTOCOL, "model": "patchnet"})
    return job


@pytest.fixture
def refusing_site(federation: Federation) -> Iterator[str]:
    """A site whose operator allows another plug-in only, for the time of a test."""
    path = federation.folder / REFUSING / "local" / "fdg_site.json"
    before = path.read_bytes() if path.exists() else None
    content = json.loads(before) if before else {}
    content.setdefault(REFUSING, {})["allowed_plugins"] = ["another-plugin"]
    path.write_text(json.dumps(content), encoding="utf-8")
    yield REFUSING
    path.write_bytes(before) if before else path.unlink()


def test_a_job_that_is_config_runs_what_every_participant_has_installed(
    federation: Federation, plugin_job: Path, tmp_path: Path
) -> None:
    record = federation.record_of(federation.session("lead").submit_job(str(plugin_job)), tmp_path / "result")
    assert (record.status, record.protocol.model) == ("finished", "patchnet")
    assert record.method.objective == {"name": "proto", "strength": 1.0}
    assert all(not finished.failures and not finished.refused_reports for finished in record.rounds)


def test_a_site_whose_operator_allows_other_plug_ins_only_refuses_the_job_at_the_census(
    federation: Federation, plugin_job: Path, refusing_site: str
) -> None:
    ended = federation.wait_for(federation.session("lead").submit_job(str(plugin_job)))
    assert ended.status != "FINISHED:COMPLETED"
    assert f"site {refusing_site} cannot take part: " in ended.log
    assert "comes from a plug-in that the operator does not allow here (allowed_plugins" in ended.log
