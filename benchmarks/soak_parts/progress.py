# SPDX-License-Identifier: Apache-2.0
"""Which round the server has completed, from the logs of its jobs: cheaper than reading a record that grows."""

import re
from pathlib import Path

_ROUND = re.compile(rb"\bround (\d+)/\d+ \| sites ")


class Progress:
    """The last complete round of the runs in a server's folder; a resumed run has a job, and a log, of its own."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._read: dict[Path, int] = {}  # bytes of each log so far, whole lines only

    def new_round(self) -> int | None:
        """Return the last round whose line has been written since the last call; None if there is none."""
        found = [number for log in self._server.glob("*-*-*-*-*/log.txt") for number in self._new_in(log)]
        return max(found, default=None)

    def _new_in(self, log: Path) -> list[int]:
        try:
            with log.open("rb") as file:
                file.seek(self._read.get(log, 0))
                content = file.read()
        except OSError:
            return []  # FLARE removes the folder of a job that has ended
        whole = content[: content.rfind(b"\n") + 1]
        self._read[log] = self._read.get(log, 0) + len(whole)
        return [int(number) for number in _ROUND.findall(whole)]
