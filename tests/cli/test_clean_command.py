# SPDX-License-Identifier: Apache-2.0
"""``fdg kit clean``: what it removes, what it must not remove, and what it never touches."""

import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fdg_plugins.cli.main import app
from fdg_plugins.state.leftovers import DAY_S

OLD, NEW = "3379af42-b0b1-4066-889e-7cf89997f720", "07004046-3976-42f3-876b-d1b6d7403de0"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["kit", "clean", *map(str, arguments)], env={"COLUMNS": "300"})


def state(kit: Path, name: str, days: float) -> Path:
    """Make the state of a run that changed last ``days`` ago."""
    folder = kit / "fdg_state" / name
    folder.mkdir(parents=True)
    (folder / "checkpoint.safetensors").write_bytes(b"0" * 1000)
    age(folder, days)
    return folder


def age(folder: Path, days: float) -> None:
    moment = time.time() - days * DAY_S
    for path in (*folder.iterdir(), folder):
        os.utime(path, (moment, moment))


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    folder = tmp_path / "photo"
    (folder / "startup").mkdir(parents=True)
    (folder / "startup" / "fed_client.json").touch()
    state(folder, OLD, 10)
    state(folder, NEW, 0.5)
    return folder


def left(kit: Path) -> set[str]:
    return {path.name for path in (kit / "fdg_state").iterdir()}


def test_what_has_not_changed_for_a_day_goes(kit: Path) -> None:
    result = run("--kit", kit)
    assert result.exit_code == 0
    assert left(kit) == {NEW}
    assert [line.split("  ")[-1] for line in result.stdout.splitlines()[1:]] == [
        "kept: it has changed within the last 1 day",
        "removed",
    ]


def test_a_dry_run_removes_nothing(kit: Path) -> None:
    assert "would be removed" in run("--kit", kit, "--dry-run").stdout
    assert left(kit) == {OLD, NEW}


def test_a_change_of_any_file_counts(kit: Path) -> None:
    (kit / "fdg_state" / OLD / "deep").mkdir()
    (kit / "fdg_state" / OLD / "deep" / "file").touch()
    os.utime(kit / "fdg_state" / OLD / "deep", (0, 0))
    os.utime(kit / "fdg_state" / OLD, (0, 0))
    run("--kit", kit)
    assert left(kit) == {OLD, NEW}


def test_a_run_that_is_named_goes_whenever_it_has_changed_and_no_other(kit: Path) -> None:
    assert run("--kit", kit, "--run", NEW).exit_code == 0
    assert left(kit) == {OLD}
    result = run("--kit", kit, "--run", NEW)
    assert result.exit_code == 2
    assert f"run {NEW} has left nothing" in result.stderr


def test_links_are_not_followed_and_strangers_stay(kit: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    os.utime(outside, (0, 0))
    (kit / "fdg_state" / "linked").symlink_to(outside)
    (kit / "fdg_state" / OLD / "link").symlink_to(outside)
    (kit / "fdg_state" / "a file").touch()
    Path(os.fsdecode(os.fsencode(kit) + b"/fdg_state/\xff")).mkdir()
    age(kit / "fdg_state" / OLD, 10)
    os.utime(kit / "fdg_state" / OLD / "link", (0, 0), follow_symlinks=False)
    os.utime(kit / "fdg_state" / OLD, (0, 0))
    result = run("--kit", kit)
    assert result.exit_code == 0
    assert result.stdout.count("it is not the folder of a run") == 3
    assert left(kit) == {NEW, "linked", "a file", "\udcff"}
    assert (outside / "precious").exists()


@pytest.mark.parametrize("name", ["linked", "../photo", "..", ".", "", "/", "a/b"])
def test_no_name_of_a_run_leads_out_of_the_state_folder(kit: Path, tmp_path: Path, name: str) -> None:
    (kit / "fdg_state" / "linked").symlink_to(tmp_path)
    run("--kit", kit, "--run", name)
    assert left(kit) == {OLD, NEW, "linked"}
    assert (kit / "startup").exists()


def test_a_state_folder_that_is_a_link_is_refused(kit: Path, tmp_path: Path) -> None:
    (kit / "fdg_state").rename(tmp_path / "elsewhere")
    (kit / "fdg_state").symlink_to(tmp_path / "elsewhere")
    result = run("--kit", kit)
    assert result.exit_code == 2
    assert "is a link or not a folder" in result.stderr
    assert left(kit) == {OLD, NEW}


def test_a_simulators_workspace_is_a_folder_of_several(kit: Path) -> None:
    state(kit.parent / "server", "simulate_job", 10)
    result = run("--kit", kit.parent)
    assert result.stdout.count("removed") == 2
    assert left(kit) == {NEW}
    assert left(kit.parent / "server") == set()


def test_what_cannot_be_removed_is_said_and_the_exit_code_is_1(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shutil.rmtree", fail)
    result = run("--kit", kit)
    assert result.exit_code == 1
    assert "not removed: folder" in result.stdout
    assert "Permission denied" in result.stdout


@pytest.mark.parametrize("place", ["/nowhere", "."])
def test_what_is_no_kit_is_named(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("--kit", place)
    assert result.exit_code == 2
    assert "expected a participant's kit or a simulator's workspace" in " ".join(result.stderr.split())
