# SPDX-License-Identifier: Apache-2.0
"""One participant is killed and started again, with everything it had started, and no other is touched."""

import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.poc.processes import belongs, check_port, end_all, kill_participant, processes, start_participant

PATIENCE_S = 30.0
# As FLARE's: the script that an operator calls starts a daemon, which starts the participant again when it dies.
START = 'bash "$(dirname "$0")/sub_start.sh" > /dev/null 2>&1 &\n'
DAEMON = 'while true; do python3 -c "import time; time.sleep(600)" "$(cd "$(dirname "$0")/.." && pwd)/startup"; done\n'


def _has_both(folder: Path, name: str) -> bool:
    """Return whether the daemon and the participant run, and nothing else, such as a shell that is being started."""
    found = of(folder, name)
    return len(found) == 2 and sum(_is_participant(process) for process in found) == 1


def _is_participant(process: psutil.Process) -> bool:
    try:
        return "time.sleep(600)" in " ".join(process.cmdline()) and "bash" not in process.name()
    except psutil.Error:
        return False


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    for name in ("server", "site"):
        startup = tmp_path / name / "startup"
        startup.mkdir(parents=True)
        (startup / "start.sh").write_text(START)
        (startup / "sub_start.sh").write_text(DAEMON)
        start_participant(tmp_path, name)
        wait_until(partial(_has_both, tmp_path, name))
    yield tmp_path
    end_all(tmp_path)


def of(folder: Path, name: str) -> list[psutil.Process]:
    return [process for process in processes(folder) if belongs(process, folder / name)]


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_killed_stays_down_until_it_is_started(folder: Path) -> None:
    others = {process.pid for process in of(folder, "server")}
    assert kill_participant(folder, "site") == 2, "the daemon and what it keeps alive"
    time.sleep(0.3)  # a daemon that had outlived it would start it again
    assert of(folder, "site") == []
    assert {process.pid for process in of(folder, "server")} == others
    start_participant(folder, "site")
    wait_until(partial(_has_both, folder, "site"))


def test_a_participant_that_does_not_run_is_killed_by_ending_nothing(folder: Path) -> None:
    assert kill_participant(folder, "nobody") == 0
    assert len(of(folder, "server")) == len(of(folder, "site")) == 2


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", ""])
def test_a_port_that_is_taken_at_any_address_is_refused(address: str) -> None:
    with socket.create_server((address, 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"^port {port} of this machine cannot be used"):
            check_port(port)
    check_port(port)
