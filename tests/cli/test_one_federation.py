# SPDX-License-Identifier: Apache-2.0
"""The engine ``poc`` without a federation: what is told of a job, what is kept of it, and what is refused."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from fdg_plugins.cli import one_federation
from fdg_plugins.cli.one_federation import interrupted_run, main
from fdg_plugins.cli.submit import COMPLETED, Ending
from fdg_plugins.lab.engine.run import RESULTS
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE
from fdg_plugins.record.run_files import RESULTS_FILE
from tests.cli.commands import check_refusal, fdg

ROOT = Path(__file__).parents[2]


class Store:
    """A server whose job has left ``files``, and the session with it."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *rest: object) -> None:
        """Close nothing."""

    def submit(self, job: object) -> str:
        return "3379af42"

    def ask(self, question: Any, patience: float = 0.0) -> Any:
        return question(self)

    def download_job_result(self, job: str, destination: str) -> str:
        for name, text in self.files.items():
            path = Path(destination, job, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(Path(destination, job))


def test_the_run_to_resume_is_the_one_whose_rounds_the_server_has_kept(tmp_path: Path) -> None:
    assert interrupted_run(tmp_path) is None
    kept = tmp_path / "server" / "fdg_state" / "3379af42"
    kept.mkdir(parents=True)
    assert interrupted_run(tmp_path) is None
    (kept / CHECKPOINT_FILE).touch()
    assert interrupted_run(tmp_path) == "3379af42"


@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_the_job_leaves_is_there_while_it_runs_and_when_flare_has_removed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    workspace = tmp_path / "workspace"
    at_server = workspace / "federation" / "server" / "3379af42"

    @contextmanager
    def running(*rest: object) -> Iterator[None]:
        at_server.mkdir(parents=True)
        yield

    def followed(*rest: object) -> Ending:
        (at_server / RESULTS_FILE).write_text("its last round")
        assert (workspace / RESULTS / RESULTS_FILE).read_text() == "its last round"
        if is_stopped:
            raise KeyboardInterrupt
        shutil.rmtree(at_server)
        return Ending(COMPLETED)

    left = {f"workspace/{RESULTS_FILE}": "its last round", "workspace/tb_events/events": "e", "job/meta.json": "{}"}
    monkeypatch.setattr(one_federation, "Server", lambda *rest: Store(left))
    for name, stub in (("running", running), ("follow", followed), ("write_resuming_job", MagicMock())):
        monkeypatch.setattr(one_federation, name, stub)
    with pytest.raises(KeyboardInterrupt) if is_stopped else nullcontext():
        one_federation.execute(ROOT / "jobs" / "pacs_fedavg", workspace, tmp_path / "state")
    assert (workspace / RESULTS / RESULTS_FILE).read_text() == "its last round"
    assert (workspace / RESULTS / "tb_events").exists() is not is_stopped


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
