# SPDX-License-Identifier: Apache-2.0
"""A federation on one machine: its project, its folder, its kits and its ports."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fdg_plugins.cli import poc
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.poc import kits
from fdg_plugins.lab.poc.kits import (
    PROJECT_FILE,
    PROVISION,
    STATE_FILE,
    configure,
    known_project,
    provision,
    read_project,
)
from fdg_plugins.lab.poc.processes import check_port, end_all
from fdg_plugins.lab.sweep.run import DAEMON_SCRIPT, MARK, processes_below
from fdg_plugins.settings.site_config import FILE_NAME
from fdg_plugins.storage import read_json
from tests.cli.commands import check_refusal, fdg
from tests.own_drawings import draw_own

ROOT = Path(__file__).parents[2]


def test_the_project_is_that_which_flares_tools_are_given_or_has_other_sites() -> None:
    assert PROJECT_FILE.read_bytes() == (ROOT / "poc" / "project.yml").read_bytes()
    project = read_project(9000, None, ["a", "b", "c", "d", "e"])
    assert (project.sites, project.ports) == (("a", "b", "c", "d", "e"), (9000, 9001))
    organisations = [each["org"] for each in project.content["participants"] if each["type"] == "client"]
    assert organisations == ["museum", "museum", "studio", "studio", "museum"]


def test_a_folder_keeps_its_ports_and_sites(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text('{"version": 1, "ports": [9000, 9001], "sites": ["a", "b"]}')
    assert known_project(tmp_path, 9000, ["b", "a"]).sites == ("a", "b")
    for wanted in ({"port": 9002}, {"sites": ["a", "c"]}):
        with pytest.raises(SettingsError):
            known_project(tmp_path, **wanted)
    stopped = fdg("poc", "stop", tmp_path)
    assert (stopped.exit_code, stopped.stdout) == (0, "stopped: 0 processes ended, none is left\n")
    # of version 0.1.0
    (tmp_path / STATE_FILE).write_text('{"version": 1, "ports": [9000, 9001], "pids": {"photo": [1, 2]}}')
    assert known_project(tmp_path).sites == read_project().sites


def test_what_runs_is_shown_and_ended_by_another_command(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text('{"version": 1, "ports": [9000, 9001], "sites": ["a", "b"]}')
    words = [sys.executable, "-c", "import time; time.sleep(600)", str(tmp_path / "a" / DAEMON_SCRIPT)]
    with subprocess.Popen(words, env={**os.environ, MARK: str(tmp_path)}) as daemon:
        told = fdg("poc", "status", tmp_path)
        check_refusal(fdg("poc", "start", tmp_path), "its federation runs already, 1 processes")
        assert "stopped: 1 processes ended" in fdg("poc", "stop", tmp_path).stdout
    assert told.exit_code == 0
    assert all(words in told.stdout for words in (f"1 processes: {daemon.pid}", "not running"))


@pytest.mark.parametrize("content", [None, "{", '{"ports": [8002, 0]}', '{"version": 2, "ports": [8002, 8003]}'])
def test_a_folder_without_a_federation_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / STATE_FILE).write_text(content)
    with pytest.raises(DataError):
        known_project(tmp_path)
    for command in ("status", "stop"):
        assert fdg("poc", command, tmp_path).exit_code == 2


@pytest.mark.parametrize("options", [["--port", "0"], ["--sites", "2"], ["--data-root", "/nowhere"], ["two words"]])
def test_a_wrong_request_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fdg_variables: None, options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fdg("poc", "start", tmp_path / "poc", *options).exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_site_may_have_any_name_is_told_its_part_and_the_key_of_the_authority_is_beside_the_kits(
    tmp_path: Path,
) -> None:
    sites = ["photo", "provision", "startup", "federation", "voc2007-2of2"]
    project, folder = read_project(9000, None, sites), tmp_path / "federation"
    provision(project, folder)
    configure(project, folder, {"photo": "photo", "voc2007-2of2": "voc2007"})
    told = {name: read_json(folder / name / "local" / FILE_NAME)[name] for name in sites}
    assert told["photo"] == {"domain": "photo", "device": "auto", "threads": 1}
    assert told["voc2007-2of2"] == {**told["photo"], "domain": "voc2007", "part": "2/2"}
    assert all((folder / name / "startup" / "fed_client.json").is_file() for name in sites)
    assert (folder / PROVISION).stat().st_mode & 0o077 == 0
    assert list((folder / PROVISION).rglob("cert.json"))


@pytest.mark.parametrize("address", ["127.0.0.1", ""])
def test_a_port_that_is_taken_at_any_address_is_refused(address: str, tmp_path: Path, no_fdg_variables: None) -> None:
    with socket.create_server((address, 0)) as listener:
        port = listener.getsockname()[1]
        check_refusal(fdg("poc", "start", tmp_path / "poc", "--port", port), f"--port is {port}, expected a free one")
    assert not (tmp_path / "poc").exists(), "nothing was provisioned"
    check_port(port)


def test_a_site_whose_script_was_run_by_hand_is_found_and_ended(tmp_path: Path) -> None:
    script = tmp_path / "federation" / "photo" / "startup" / "sub_start.sh"
    script.parent.mkdir(parents=True)
    script.write_text("echo; sleep 60; exit")
    log = ["tail", "-f", str(script)]
    own, other = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(["bash", script], stdout=own) as site, subprocess.Popen(log, stdout=other) as reader:
        assert site.stdout is not None
        site.stdout.readline()  # a process that has just begun has no words yet
        found = [process.pid for process in processes_below(tmp_path / "federation")]
        ended = end_all(tmp_path / "federation")
        reads = reader.poll() is None
        site.kill()
        reader.kill()
    assert (found, ended, reads) == ([site.pid], 1, True)


def test_one_domain_of_your_own_is_enough_for_a_site_that_only_evaluates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fdg_variables: None
) -> None:
    images, told = draw_own(tmp_path / "ward", domains=("hospital-e",)), list[tuple[object, ...]]()
    for owner, step in ((poc, "check_port"), (poc, "launch"), (kits, "provision")):
        monkeypatch.setattr(owner, step, lambda *_: None)
    monkeypatch.setattr(kits, "configure", lambda project, folder, *data: told.append(data))
    assert fdg("poc", "start", tmp_path / "poc", "--dataset", images).exit_code == 0
    assert told == [({"hospital-e": "hospital-e"}, images, None)]
    check_refusal(fdg("poc", "start", tmp_path / "poc", "--dataset", images, "--sites", 3), "at least 3 domains")
