# SPDX-License-Identifier: Apache-2.0
"""Where the state of a run is kept, and that at the server one job has it at a time, and nobody but its submitter."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
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
from tests.flare_runner import SiteWorkspace

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
    server = SiteWorkspace(tmp_path / "workspace" / "server")
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
        state_folder(SiteWorkspace(tmp_path), name)
    assert refused.value.field == "run"


def test_a_folder_that_no_task_has_used_for_long_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    workspace = SiteWorkspace(tmp_path)
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
