# SPDX-License-Identifier: Apache-2.0
"""The end of a federation, also after a crash. Last of all: what the other tests share is gone afterwards."""

import time

from .conftest import Federation

RESTART_TIMEOUT_S = 60


def test_stop_leaves_no_process_though_daemons_restart_what_dies(federation: Federation) -> None:
    kit = federation.folder / "photo"
    killed = int((kit / "pid.fl").read_text(encoding="utf-8"))
    for process in federation.processes():
        if process.pid == killed:
            process.kill()
    deadline = time.monotonic() + RESTART_TIMEOUT_S
    while int((kit / "pid.fl").read_text(encoding="utf-8") or killed) == killed:
        assert time.monotonic() < deadline, "FLARE's daemon has not restarted the site"
        time.sleep(0.2)

    stopped = federation.control("stop")
    assert stopped.returncode == 0, stopped.output
    assert federation.processes() == []
    time.sleep(6)  # a daemon looks every 5 seconds
    assert federation.processes() == []
    assert not list(federation.folder.glob("*/*pid.fl"))
    again = federation.control("stop")
    assert (again.returncode, "0 processes ended" in again.output) == (0, True)
