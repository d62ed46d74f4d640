# SPDX-License-Identifier: Apache-2.0
"""What the soak does to a federation, and after which round: sites are killed in turn, and the server once."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from fdg_plugins.lab.poc.processes import belongs, start_participant
from fdg_plugins.lab.sweep.run import processes_below
from soak_parts.rows import FaultRow

AWAY_S = 60.0
"""How long every second site that is killed stays away: longer than the server takes to give it up."""


def killed_after(number: int, sites: Sequence[str], every: int, rounds: int) -> str | None:
    """Return the site that is killed after round ``number`` of ``rounds``, each in its turn; None if none is."""
    is_due = every > 0 and number % every == 0 and number < rounds
    return sites[(number // every - 1) % len(sites)] if is_due else None


@dataclass
class Faults:
    """Kills and starts participants of the federation in ``folder`` as the run goes on.

    A site is killed every ``every`` rounds; every second one stays away for ``AWAY_S``, the others are started again
    at once. The server is killed, and started again at once, after round ``restart_at``. ``clock`` gives the seconds.
    """

    folder: Path
    server: str
    sites: Sequence[str]
    rounds: int
    every: int
    restart_at: int
    clock: Callable[[], float] = time.monotonic
    done: list[FaultRow] = field(default_factory=list)
    _away: dict[str, float] = field(default_factory=dict)
    _last: int = 0

    def after(self, number: int) -> None:
        """Do what is due after round ``number``, and after those before it whose end was not seen."""
        for each in range(self._last + 1, number + 1):
            self._after(each)
        self._last = max(self._last, number)
        self.look(number)

    def _after(self, number: int) -> None:
        if (site := killed_after(number, self.sites, self.every, self.rounds)) is not None:
            self._kill(number, site)
            is_back_at_once = (number // self.every) % 2 == 1
            self._away[site] = self.clock() + (0.0 if is_back_at_once else AWAY_S)
        if number == self.restart_at:
            self._kill(number, self.server)
            self._start(number, self.server)

    def look(self, number: int) -> None:
        """Start the sites whose time away has passed; ``number``: the last round that is complete."""
        for site in [site for site, until in self._away.items() if self.clock() >= until]:
            del self._away[site]
            self._start(number, site)

    def _kill(self, number: int, participant: str) -> None:
        found = {process for process in processes_below(self.folder) if belongs(process, self.folder / participant)}
        found |= {child for process in found for child in process.children(recursive=True)}
        for process in sorted(found, key=psutil.Process.create_time):  # first the daemon, which would start others
            process.kill()
        self.done.append(FaultRow(number, self.clock(), "killed", participant))

    def _start(self, number: int, participant: str) -> None:
        start_participant(self.folder, participant)
        self.done.append(FaultRow(number, self.clock(), "started", participant))
