# SPDX-License-Identifier: Apache-2.0
"""The engine ``poc`` without a federation: what is told of a job, what is kept of it, and what is refused."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from fdg_plugins.cli import one_federation
from fdg_plugins.cli.one_federation import collect, interrupted_run, main, mirror
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.engine import EngineName
from fdg_plugins.lab.engine.run import ENGINES
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE
from fdg_plugins.record.run_files import RESULTS_FILE
from tests.cli.commands import check_refusal, fdg

ROOT = Path(__file__).parents[2]


class Store:
    """A server whose job has left ``files``."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

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


def test_the_record_is_copied_as_it_grows_and_kept_when_the_job_has_gone(tmp_path: Path) -> None:
    job, results = tmp_path / "job", tmp_path / "results"
    results.mkdir()
    mirror(job, results)
    assert list(results.iterdir()) == []
    job.mkdir()
    for number, text in enumerate(("one", "two")):
        (job / RESULTS_FILE).write_text(text)
        os.utime(job / RESULTS_FILE, ns=(number, number))
        mirror(job, results)
        assert (results / RESULTS_FILE).read_text() == text
    (job / RESULTS_FILE).unlink()
    mirror(job, results)
    assert [path.name for path in results.iterdir()] == [RESULTS_FILE]


def test_a_record_that_says_finished_comes_after_the_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, results = tmp_path / "job", tmp_path / "results"
    for folder in (job / "tb_events", results):
        folder.mkdir(parents=True)
    for name, text in ((RESULTS_FILE, '{"status": "finished"}'), ("global_model.safetensors", "model")):
        (job / name).write_text(text)
    (job / "tb_events" / "events").write_text("events")
    mirror(job, results)
    found = {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}
    assert found == {RESULTS_FILE, "global_model.safetensors", "tb_events/events"}
    (results / RESULTS_FILE).unlink()

    def full(*rest: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(one_federation, "copy_all", full)
    mirror(job, results)
    assert not (results / RESULTS_FILE).exists()


def test_a_round_that_ends_while_the_federation_is_ended_is_in_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_server = tmp_path / "workspace" / "federation" / "server" / "3379af42"

    @contextmanager
    def running(*rest: object) -> Iterator[None]:
        at_server.mkdir(parents=True)
        try:
            yield
        finally:
            (at_server / RESULTS_FILE).write_text("its last round")

    def stopped(*rest: object) -> None:
        raise KeyboardInterrupt

    server = MagicMock()
    server.return_value.__enter__.return_value.submit.return_value = at_server.name
    monkeypatch.setattr(one_federation, "Server", server)
    for name, stub in (("running", running), ("follow", stopped), ("write_resuming_job", MagicMock())):
        monkeypatch.setattr(one_federation, name, stub)
    with pytest.raises(KeyboardInterrupt):
        one_federation.execute(ROOT / "jobs" / "pacs_fedavg", tmp_path / "workspace", tmp_path / "state")
    assert (tmp_path / "workspace" / "results" / RESULTS_FILE).read_text() == "its last round"


def test_all_that_the_job_has_left_replaces_the_copy(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / RESULTS_FILE).write_text("running")
    (results / "tb_events" / "run").mkdir(parents=True)
    (results / "tb_events" / "run" / "events").write_text("copied while it was written")
    left = {f"workspace/{RESULTS_FILE}": "finished", "workspace/tb_events/run/events": "e", "job/meta.json": "{}"}
    collect(Store(left), "3379af42", results)  # type: ignore[arg-type]
    assert (results / RESULTS_FILE).read_text() == "finished"
    assert (results / "tb_events" / "run" / "events").read_text() == "e"
    assert sorted(path.name for path in results.iterdir()) == [RESULTS_FILE, "tb_events"]
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_job_that_cannot_be_executed_ends_with_its_reason_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FL_LOG_LEVEL", "concise")
    assert main([str(tmp_path / name) for name in ("job", "workspace", "state")]) == 1
    assert "is not a job" in caplog.text


def test_a_path_that_flares_scripts_would_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        ENGINES[EngineName.POC].check_path(tmp_path / "two words")


def test_code_does_not_reach_a_federation(tmp_path: Path) -> None:
    words = ["run", "clipped_fedavg", "--plugin", ROOT / "custom" / "clipped_fedavg.py", "--engine", "poc"]
    check_refusal(fdg(*words, "--to", tmp_path / "run"), "would bring clipped_fedavg.py")
    assert not (tmp_path / "run").exists()
