# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that a test talks to over pipes, by the protocol of its developer tools."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SWITCHES = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe"


class Tab:
    """One tab; ``events``: what it told in between, such as requests and what a page's policy refused."""

    def __init__(self, to: BinaryIO, answers: BinaryIO) -> None:
        self.to, self.answers, self.events, self.session = to, answers, list[dict[str, Any]](), dict[str, str]()
        found = self.call("Target.createTarget", url="about:blank")
        attached = self.call("Target.attachToTarget", targetId=found["targetId"], flatten=True)
        self.session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        self.to.write(json.dumps({"id": 1, "method": method, "params": parameters, **self.session}).encode() + b"\0")
        while "id" not in (answer := self._next()):
            self.events.append(answer)
        return answer["result"]

    def show(self, file: Path, width: int) -> None:
        """Open a file in a window so many pixels wide, and wait until it is there."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=file.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, script: str) -> Any:
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def _next(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(b"".join(iter(lambda: self.answers.read(1), b"\0")))
        return found


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """Start a browser with its profile in ``folder``; skip the test on a machine without one."""
    if (program := next(filter(None, map(shutil.which, NAMES)), None)) is None:
        pytest.skip(f"needs one of {', '.join(NAMES)}, as of Debian's package chromium")
    (reads, to), (answers, writes) = os.pipe(), os.pipe()
    line = f'exec "$0" {SWITCHES} --user-data-dir="$1" 3<&{reads} 4>&{writes}'
    words = ["bash", "-c", line, program, str(folder / "profile")]
    with (
        os.fdopen(to, "wb", buffering=0) as requests,
        os.fdopen(answers, "rb") as stream,
        subprocess.Popen(words, pass_fds=(reads, writes), stderr=subprocess.DEVNULL) as process,
    ):
        os.close(reads)
        os.close(writes)
        try:
            yield Tab(requests, stream)
        finally:
            process.kill()
