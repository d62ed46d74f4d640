# SPDX-License-Identifier: Apache-2.0
"""A participant's folder of state: its own, held by one job; and what a method keeps at a site over rounds."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.workspace import Workspace

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.state.folders import (
    ADMINISTRATOR,
    EXPIRY_S,
    OWNER_FILE,
    VARIABLE,
    held_run,
    remove_expired,
    state_folder,
)
from fdg_plugins.state.site_memory import Kept, clear_memory, has_memory, read_fixed, read_kept, write_fixed, write_kept
from tests.flare_runner import workspace_of

HOLDER = """
import sys
from pathlib import Path
from fdg_plugins.state.folders import held_run
with held_run(Path(sys.argv[1]), {}, lambda: False):
    (Path(sys.argv[1]) / "checkpoint").touch()
    print("held", flush=True)
    sys.stdin.read()
"""


def test_state_folder_is_each_participants_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = workspace_of(tmp_path / "workspace" / "server")
    monkeypatch.delenv(VARIABLE, raising=False)
    assert state_folder(server, "job") == tmp_path / "workspace" / "server" / "fdg_state" / "job"
    monkeypatch.setenv(VARIABLE, str(tmp_path / "kept"))
    assert state_folder(server, "job") == tmp_path / "kept" / "server" / "fdg_state" / "job"
    for folder in ("startup", "local"):
        (tmp_path / folder).mkdir()
    for name, place in (("photo", "photo"), ("../cartoon", "cartoon"), ("", tmp_path.name)):  # in containers
        assert state_folder(Workspace(str(tmp_path), name), "job") == tmp_path / "kept" / place / "fdg_state" / "job"


@pytest.mark.parametrize("name", ["../elsewhere", "a\n", "", "x" * 65])
def test_a_name_that_is_no_job_id_leads_nowhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        state_folder(workspace_of(tmp_path), name)
    assert refused.value.field == "run"


def test_a_folder_that_no_task_has_used_for_long_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    workspace = workspace_of(tmp_path)
    for name in ("old", "new"):
        state_folder(workspace, name).mkdir(parents=True)
    os.utime(state_folder(workspace, "old"), (0, state_folder(workspace, "new").stat().st_mtime - EXPIRY_S - 60))
    remove_expired(workspace)
    assert [path.name for path in (tmp_path / "fdg_state").iterdir()] == ["new"]


def meta(name: str = "lead", org: str = "hospital", role: str = "lead") -> dict[str, Any]:
    keys = (JobMetaKey.SUBMITTER_NAME, JobMetaKey.SUBMITTER_ORG, JobMetaKey.SUBMITTER_ROLE)
    return dict(zip((key.value for key in keys), (name, org, role), strict=True))


def test_a_run_that_leaves_nothing_leaves_no_folder_and_one_that_does_keeps_it_private(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with held_run(folder, meta(), lambda: False):
        assert (folder / OWNER_FILE).exists()
    assert not folder.exists()
    with held_run(folder, meta(), lambda: False):
        (folder / "checkpoint").touch()
    assert {path.name for path in folder.iterdir()} == {"checkpoint", OWNER_FILE}
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / OWNER_FILE)] == [0o700, 0o600]


def test_while_one_job_has_it_another_is_refused_and_after_its_process_was_killed_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DataError, match="still goes on in another job"), held_run(folder, {}, lambda: True):
            pass
        with monkeypatch.context() as hasty:
            hasty.setattr("fdg_plugins.state.folders.PATIENCE_S", 0.0)
            with pytest.raises(DataError, match="still goes on in another job"), held_run(folder, {}, lambda: False):
                pass
        other.kill()
        with held_run(folder, {}, lambda: False):
            assert (folder / "checkpoint").exists()


@pytest.mark.parametrize(
    ("other", "may"),
    [
        (meta(role="org_admin"), True),
        (meta(name="else"), False),
        (meta(org="university"), False),
        (meta("admin", "operator", ADMINISTRATOR), True),
        ({}, False),
    ],
)
def test_who_started_a_run_goes_on_with_it(other: dict[str, Any], may: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with held_run(folder, meta(), lambda: False):
        (folder / "checkpoint").touch()
    if may:
        with held_run(folder, other, lambda: False):
            pass
    else:
        with pytest.raises(DataError, match="another person") as refused, held_run(folder, other, lambda: False):
            pass
        assert "hospital" not in str(refused.value)
    assert (folder / "checkpoint").exists()


def write(folder: Path, *numbers: int) -> None:
    for number in numbers:
        write_kept(
            folder, abs(number), Kept({"variate": torch.full((2, 3), float(number))}, momentum={"w": torch.ones(1)})
        )


def known(folder: Path, before: int) -> float | None:
    memory = read_kept(folder, before).memory
    return float(memory["variate"][0, 0]) if memory else None


def test_memory_is_of_the_last_round_and_a_repeated_one_starts_before(tmp_path: Path) -> None:
    assert read_kept(tmp_path / "missing", 0) == Kept()
    write_kept(tmp_path, 3, Kept({}))
    assert list(tmp_path.iterdir()) == []
    write(tmp_path, 2)
    assert known(tmp_path, 2) is None, "the first round that it trained in can be repeated"
    write(tmp_path, 10, 11)
    assert [known(tmp_path, before) for before in (11, 12, 100)] == [10.0, 11.0, 11.0]
    write(tmp_path, -11)
    assert [known(tmp_path, before) for before in (11, 12)] == [10.0, -11.0]
    write(tmp_path, -10)
    assert known(tmp_path, 100) == -10.0, "what later rounds left is gone once an earlier one is repeated"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_server_that_has_lost_more_than_one_round_is_refused_instead_of_begun_with_anew(tmp_path: Path) -> None:
    write(tmp_path, *range(7))
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(DataError) as refused:
        read_kept(tmp_path, 4)
    assert "nothing from before round 5, " in str(refused.value)
    assert "after rounds 6 and 7." in str(refused.value)
    assert refused.value.public == "what it knew before round 5, to which the server has gone back, is gone."
    assert known(tmp_path, 0) is None, "a run that begins anew"


def test_a_spoilt_file_is_named_and_other_files_are_left_alone(tmp_path: Path) -> None:
    strangers = [tmp_path / f"fdg_trained_{name}.safetensors" for name in ("\u00b2", "", "-1")]
    for path in strangers:
        path.write_bytes(b"other")
    write(tmp_path, 4, 5, 6)
    assert known(tmp_path, 8) == 6.0
    (tmp_path / "fdg_trained_6.safetensors").write_bytes(b"spoilt")
    assert stat.S_IMODE((tmp_path / "fdg_trained_5.safetensors").stat().st_mode) == 0o600
    with pytest.raises(DataError) as refused:
        read_kept(tmp_path, 8)
    assert "fdg_trained_6.safetensors" in str(refused.value)
    clear_memory(tmp_path)
    assert {*tmp_path.iterdir()} == {*strangers}


def test_the_fixed_part_is_found_by_its_name_alone_and_is_no_memory(tmp_path: Path) -> None:
    write_fixed(tmp_path, "one", {"w": torch.ones(2)})
    assert read_fixed(tmp_path, "one")["w"].tolist() == [1.0, 1.0]
    assert not has_memory(tmp_path)
    for folder, name in ((tmp_path, "another"), (tmp_path / "missing", "one")):
        with pytest.raises(DataError) as refused:
            read_fixed(folder, name)
        assert refused.value.public.startswith("it does not hold the model's fixed part")
    clear_memory(tmp_path)
    assert not list(tmp_path.iterdir())
