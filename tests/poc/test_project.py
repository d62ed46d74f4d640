# SPDX-License-Identifier: Apache-2.0
"""The project of a federation on one machine: its file is the one that FLARE's own tools are given."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fdg_plugins.cli.main import app
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.poc.project import PROJECT_FILE, STATE_FILE, State, known_project, read_project, write_state

ROOT = Path(__file__).parents[2]


def test_the_installed_project_is_that_which_flares_tools_are_given() -> None:
    assert PROJECT_FILE.read_bytes() == (ROOT / "poc" / "project.yml").read_bytes()


def test_other_sites_belong_to_the_organisations_in_turn() -> None:
    project = read_project(9000, None, ["a", "b", "c", "d", "e"])
    assert (project.sites, project.ports) == (("a", "b", "c", "d", "e"), (9000, 9001))
    organisations = [each["org"] for each in project.content["participants"] if each["type"] == "client"]
    assert organisations == ["museum", "museum", "studio", "studio", "museum"]


def test_a_folder_keeps_its_ports_and_sites(tmp_path: Path) -> None:
    write_state(tmp_path, State(ports=(9000, 9001), sites=("a", "b")))
    assert known_project(tmp_path, 9000, None, ["b", "a"]).sites == ("a", "b")
    with pytest.raises(SettingsError, match=r"^port 9002 was asked for, but .* was provisioned for 9000 and 9001;"):
        known_project(tmp_path, 9002)
    with pytest.raises(SettingsError, match=r"^sites a, c were asked for .* was provisioned for a, b;"):
        known_project(tmp_path, sites=["a", "c"])


@pytest.mark.parametrize(
    "content",
    [
        None,
        "{",
        "{}",
        "[]",
        "null",
        '{"ports": [1]}',
        '{"ports": [8002, 0]}',
        '{"ports": [8002, 8003], "sites": [5]}',
        "[" * 100_000,
        "\udcff",
    ],
)
def test_a_folder_without_a_federation_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / STATE_FILE).write_text(content, errors="surrogateescape")
    with pytest.raises(DataError, match=str(tmp_path)):
        known_project(tmp_path)


def test_a_state_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=rf"^file .*/file/{STATE_FILE} cannot be written: "):
        write_state(tmp_path / "file", State(ports=(9000, 9001)))


def test_the_command_refuses_what_is_not_there(tmp_path: Path) -> None:
    for arguments in (["status"], ["stop"], ["start", "--data-root", str(tmp_path / "nothing")]):
        result = CliRunner().invoke(app, ["poc", *arguments, "--folder", str(tmp_path)])
        assert result.exit_code == 2
        assert str(tmp_path) in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_federation_without_processes_is_stopped_again(tmp_path: Path) -> None:
    write_state(tmp_path, State(ports=(9000, 9001), sites=("a", "b")))
    result = CliRunner().invoke(app, ["poc", "stop", "--folder", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (0, "stopped: 0 processes ended, none is left\n")


@pytest.mark.parametrize("name", ["two words", "a&b", "it's"])
def test_a_folder_that_flares_scripts_would_split_is_refused_before_anything_is_written(
    tmp_path: Path, name: str
) -> None:
    result = CliRunner().invoke(app, ["poc", "start", "--folder", str(tmp_path / name)])
    assert result.exit_code == 2
    assert "expected a path without blanks" in " ".join(result.stderr.split())
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("option", ["--port", "--admin-port"])
@pytest.mark.parametrize("number", ["0", "65536"])
def test_a_port_that_does_not_exist_is_refused(tmp_path: Path, option: str, number: str) -> None:
    # Already by the option: the folder that is not usable is not looked at.
    result = CliRunner().invoke(app, ["poc", "start", "--folder", str(tmp_path / "two words"), option, number])
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr


def test_a_folder_of_version_0_1_0_has_the_sites_of_the_project(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text('{"version": 1, "ports": [9000, 9001], "pids": {"photo": [1, 2]}}')
    assert known_project(tmp_path).sites == read_project().sites


def test_a_folder_of_another_version_is_not_used(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text('{"version": 2, "ports": [9000, 9001]}')
    with pytest.raises(DataError, match=rf"^file .*{STATE_FILE} cannot be used: .*version"):
        known_project(tmp_path)


@pytest.mark.parametrize(
    ("options", "told"),
    [(["--gpus", "1"], "gpus is 1 without gpu_memory"), (["--gpu-memory", "8"], "gpu_memory is 8.0, but gpus is 0")],
)
def test_gpus_that_flare_could_not_count_are_refused_before_anything_is_written(
    tmp_path: Path, options: list[str], told: str
) -> None:
    result = CliRunner().invoke(app, ["poc", "start", "--folder", str(tmp_path / "poc"), *options])
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert not (tmp_path / "poc").exists()


@pytest.mark.parametrize(
    ("sites", "told"),
    [
        (["phto"], "--site-data names site 'phto', did you mean 'photo'?"),
        (["photo", "sketch", "photo"], "--site-data names site 'photo' twice"),
    ],
)
def test_data_of_a_site_that_is_not_there_or_named_twice_is_refused_before_anything_is_written(
    tmp_path: Path, sites: list[str], told: str
) -> None:
    options = [word for site in sites for word in ("--site-data", f"{site}={tmp_path}")]
    result = CliRunner().invoke(app, ["poc", "start", "--folder", str(tmp_path / "poc"), *options])
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert not (tmp_path / "poc").exists()
