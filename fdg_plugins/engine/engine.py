# SPDX-License-Identifier: Apache-2.0
"""The extension point of a run: an engine executes a job on this machine; how it does so is its own affair.

Everything else is the same for all engines: the job and its folder, the checks before, what is shown meanwhile, and
what is kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from fdg_plugins.sweep.plan import PlannedRun
from fdg_plugins.sweep.run_kind import RunKind
from fdg_plugins.sweep.run_process import RunProcess


class Launch(NamedTuple):
    """What an engine is asked to execute.

    ``folder`` is the run's, an absolute path; it contains the job in ``job``. ``at_once`` is the number of sites that
    may compute at the same time, of all ``sites`` of the job. ``environment`` is the complete environment of every
    process of the run: it carries the mark (:data:`fdg_plugins.sweep.processes.MARK`) by which they are found and
    ended.
    """

    run: PlannedRun
    folder: Path
    at_once: int
    environment: Mapping[str, str]
    sites: int


class Execution(Protocol):
    """A job in execution, such as a :class:`~fdg_plugins.sweep.run_process.RunProcess`."""

    @property
    def seconds(self) -> float:
        """Seconds since the start."""

    def has_ended(self) -> bool:
        """Return whether the execution has ended by itself, well or not."""

    def end(self) -> None:
        """End all processes of the run, and wait until none is left."""

    def record(self) -> Any:
        """Return the latest record as parsed JSON, None before the first; while it is unchanged, the same object."""

    def failure(self) -> str | None:
        """Return why an ended execution did not finish, in one sentence; None if it did."""


class Engine(ABC):
    """A way to execute a job; it has no state.

    ``title`` names it in messages. ``results``, relative to a run's folder, is the folder in which a run leaves record,
    models, state and events; the output of all processes belongs in ``log.txt``, everything else in ``workspace``.
    ``processes`` is the number of processes in which the sites of a run compute unless the user asks for
    another, None for one per site.
    """

    title: ClassVar[str]
    results: ClassVar[Path]
    processes: ClassVar[int | None] = None

    @abstractmethod
    def check_folder(self, folder: Path) -> None:
        """Raise ``SettingsError`` if this engine cannot run in ``folder``, which need not exist yet."""

    @abstractmethod
    def start(self, launch: Launch) -> Execution:
        """Start the job in ``launch.folder``; raise ``DataError`` if it cannot be started."""


class CommandEngine(Engine):
    """An engine that executes a job by the command of a ``kind`` of run, in a process that it starts."""

    kind: ClassVar[type[RunKind]]

    def start(self, launch: Launch) -> RunProcess:
        """Start the command, in a session of its own."""
        kind = self.kind()
        command = kind.command(launch.run, launch.at_once, launch.sites)
        return RunProcess(launch.run, kind, launch.folder, command, launch.environment)
