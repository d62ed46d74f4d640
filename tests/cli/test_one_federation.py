# SPDX-License-Identifier: Apache-2.0
"""The engine ``poc`` without a federation: what is told of a job, what is kept of it, and what is refused."""

from pathlib import Path

import pytest

from fdg_plugins.cli.one_federation import interrupted_run, main
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE
from tests.cli.commands import check_refusal, fdg

ROOT = Path(__file__).parents[2]


def test_the_run_to_resume_is_the_one_whose_rounds_the_server_has_kept(tmp_path: Path) -> None:
    assert interrupted_run(tmp_path) is None
    kept = tmp_path / "server" / "fdg_state" / "3379af42"
    kept.mkdir(parents=True)
    assert interrupted_run(tmp_path) is None
    (kept / CHECKPOINT_FILE).touch()
    assert interrupted_run(tmp_path) == "3379af42"


def test_a_job_that_cannot_be_executed_ends_with_its_reason_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FL_LOG_LEVEL", "concise")
    assert main([str(tmp_path / name) for name in ("job", "workspace", "state")]) == 1
    assert "is not a job" in caplog.text


def test_code_does_not_reach_a_federation(tmp_path: Path) -> None:
    words = ["run", "clipped_fedavg", "--plugin", ROOT / "custom" / "clipped_fedavg.py", "--engine", "poc"]
    check_refusal(fdg(*words, "--to", tmp_path / "run"), "would bring clipped_fedavg.py")
    assert not (tmp_path / "run").exists()
