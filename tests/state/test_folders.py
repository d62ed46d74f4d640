# SPDX-License-Identifier: Apache-2.0
"""Where the state of a run is kept: with the participant, or where a simulation is told to."""

from pathlib import Path

import pytest
from nvflare.apis.workspace import Workspace

from fdg_plugins.errors import SettingsError
from fdg_plugins.state.folders import VARIABLE, state_folder
from tests.flare_runner import SiteWorkspace


def test_each_participant_has_a_folder_of_its_own_wherever_states_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, site = (SiteWorkspace(tmp_path / "workspace" / name) for name in ("server", "photo"))
    monkeypatch.delenv(VARIABLE, raising=False)
    assert state_folder(server, "job") == tmp_path / "workspace" / "server" / "fdg_state" / "job"
    monkeypatch.setenv(VARIABLE, str(tmp_path / "kept"))
    assert state_folder(server, "job") == tmp_path / "kept" / "server" / "fdg_state" / "job"
    assert state_folder(site, "job") == tmp_path / "kept" / "photo" / "fdg_state" / "job"


def test_participants_whose_workspaces_have_one_path_have_folders_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("startup", "local"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "kept"))
    found = [state_folder(Workspace(str(tmp_path), name), "job") for name in ("server", "photo", "../cartoon", "")]
    names = ("server", "photo", "cartoon", tmp_path.name)
    assert found == [tmp_path / "kept" / name / "fdg_state" / "job" for name in names]


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", "a b", "a\n", "", "x" * 65])
def test_a_name_that_is_no_job_id_leads_nowhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="expected the id of a job"):
        state_folder(SiteWorkspace(tmp_path), name)
