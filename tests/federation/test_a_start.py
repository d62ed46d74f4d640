# SPDX-License-Identifier: Apache-2.0
"""A federation that has been started: who is there, under which policies, and what stands in its way."""

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

from fdg_plugins.flare.components import SERVER, SITE, class_paths
from fdg_plugins.lab.poc.kits import PROVISION
from tests.processes import command_line

from .conftest import ISOLATED, Federation


def local(federation: Federation, participant: str, file: str) -> Any:
    return json.loads((federation.folder / participant / "local" / file).read_text(encoding="utf-8"))


def test_a_port_in_use_ends_in_one_sentence_that_names_it(tmp_path: Path, data_root: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = Federation(tmp_path / "other", (port, port + 1), data_root).start()
    assert done.returncode == 2
    assert len(done.output.strip().splitlines()) == 1
    assert f"port {port} of this machine cannot be used (Address already in use)" in done.output
    assert not (tmp_path / "other").exists(), "nothing was provisioned"


def test_server_and_sites_run_each_with_its_daemon(federation: Federation) -> None:
    done = federation.control("status")
    assert done.returncode == 0
    lines = {line.split()[0]: line for line in done.output.splitlines()}
    assert set(lines) == {"server", *federation.sites}
    assert all("2 processes" in line for line in lines.values()), done.output


def test_server_and_sites_have_no_package_of_the_lab(federation: Federation) -> None:
    asks = "from importlib.util import find_spec as f; print([n for n in ('pandas', 'matplotlib', 'sklearn') if f(n)])"
    found = subprocess.run([federation.commands / "python", "-c", asks], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
    started = next(process for process in federation.processes() if "server" in command_line(process))
    assert str(federation.commands) in command_line(started) + str(started.environ().get("PATH"))


def test_it_is_not_started_twice(federation: Federation) -> None:
    done = federation.start()
    assert done.returncode == 2
    assert "its federation runs already" in done.output


def test_every_participant_allows_our_components_and_no_others_and_forbids_code(federation: Federation) -> None:
    for participant in ("server", *federation.sites):
        entries = local(federation, participant, "resources.json")["class_allow_list"]
        assert sorted(entries) == sorted(class_paths(SERVER if participant == "server" else SITE)), "the least list"
        lead = local(federation, participant, "authorization.json")["permissions"]["lead"]
        assert {lead[right] for right in ("byoc", "operate", "shell_commands")} == {"none"}


def test_a_lost_site_would_be_noticed_within_a_minute(federation: Federation) -> None:
    assert local(federation, "server", "resources.json")["servers"][0]["heart_beat_timeout"] <= 60


def test_each_site_has_its_own_data_config_and_no_path_of_it_is_told_to_the_server(federation: Federation) -> None:
    for site in federation.sites:
        config = local(federation, site, "fdg_site.json")
        assert config[site].pop("isolate", None) is (None if site == ISOLATED else False), "which these tests have set"
        own = {"domain": site, "device": "auto", "threads": 1, "data_root": str(federation.data_root)}
        assert config == {site: own}
    assert str(federation.data_root) not in federation.log()


def test_no_site_streams_its_logs_to_the_server(federation: Federation) -> None:
    assert [local(federation, site, "resources.json")["allow_log_streaming"] for site in federation.sites] == [
        False
    ] * 4


def test_private_keys_are_readable_by_their_owner_only(federation: Federation) -> None:
    keys = [*federation.folder.rglob("*.key"), federation.folder / PROVISION]
    assert len(keys) >= 8
    assert [path for path in keys if path.stat().st_mode & 0o077] == []
