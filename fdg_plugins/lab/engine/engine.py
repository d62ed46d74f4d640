# SPDX-License-Identifier: Apache-2.0
"""The extension point of a run: an engine executes a job on this machine by a command of its own.

Everything else is the same for all engines: the job and its folder, the checks before, what is shown meanwhile, and
what is kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.run_kind import RunKind
from fdg_plugins.lab.sweep.run_process import RunProcess


class Launch(NamedTuple):
    """What an engine is asked to execute.

    ``folder`` is the run's, an absolute path; it contains the job in ``job``. ``at_once`` is the number of sites that
    may compute at the same time, of all ``sites`` of the job. ``environment`` is the complete environment of every
    process of the run: it carries the mark (:data:`fdg_plugins.lab.sweep.processes.MARK`) by which they are found and
    ended.
    """

    run: PlannedRun
    folder: Path
    at_once: int
    environment: Mapping[str, str]
    sites: int


class Engine(ABC):
    """A way to execute a job: the command of a ``kind`` of run, in a process that it starts; it has no state.

    ``title`` names it in messages. ``processes`` is the number of processes in which the sites of a run compute unless
    the user asks for another, None for one per site. The output of all processes belongs in ``log.txt``.
    """

    title: ClassVar[str]
    kind: ClassVar[type[RunKind]]
    processes: ClassVar[int | None] = None

    @property
    def results(self) -> Path:
        """The folder, relative to a run's, in which a run leaves record, models, state and events."""
        return self.kind.record_folder

    @abstractmethod
    def check_folder(self, folder: Path) -> None:
        """Raise ``SettingsError`` if this engine cannot run in ``folder``, which need not exist yet."""

    def start(self, launch: Launch) -> RunProcess:
        """Start the job in ``launch.folder``, in a session of its own; raise ``DataError`` if it cannot be started."""
        kind = self.kind()
        command = kind.command(launch.run, launch.at_once, launch.sites)
        return RunProcess(launch.run, kind, launch.folder, command, launch.environment)
