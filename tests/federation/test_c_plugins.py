# SPDX-License-Identifier: Apache-2.0
"""An installed plug-in in a provisioned federation: a job names it and brings no code; an operator may refuse it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import COMMAND_TIMEOUT_S, PROTOCOL, Federation, change_protocol


@pytest.fixture
def plugin_job(federation: Federation, tmp_path: Path) -> Path:
    """The job of the plug-in's method and network, as a lead writes it by name."""
    fdg = str(Path(sys.executable).with_name("fdg"))
    command = [fdg, "export", "job", "fedproto", str(tmp_path)]
    subprocess.run(command, env={**os.environ, **federation.plugins}, check=True, timeout=COMMAND_TIMEOUT_S)
    job = tmp_path / "pacs_fedproto"
    assert not list(job.rglob("custom"))
    change_protocol(job, **{**PROTOCOL, "model": "patchnet"})
    return job


def test_a_job_that_is_config_runs_what_every_participant_has_installed(
    federation: Federation, plugin_job: Path, tmp_path: Path
) -> None:
    record = federation.record_of(federation.session("lead").submit_job(str(plugin_job)), tmp_path / "result")
    assert (record.status, record.protocol.model) == ("finished", "patchnet")
    assert record.method.objective == {"name": "proto", "strength": 1.0}
    assert all(not finished.failures and not finished.refused_reports for finished in record.rounds)
