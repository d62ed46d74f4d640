# SPDX-License-Identifier: Apache-2.0
"""The one extension point of a sweep: a kind of run, such as FLARE's simulations, or references without FLARE.

A kind knows which methods it runs, which settings they take, how a run of its own is described in a folder ``job``, how
it is started, and where it leaves its record. Everything else of a sweep is the same for all kinds.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import read_json
from fdg_plugins.sweep.plan import PlannedRun
from fdg_plugins.sweep.request import DataFound


class Written(NamedTuple):
    """What is known of a run once its job is written: its protocol, and how many of its processes compute at once."""

    protocol: Protocol
    processes: int


class RunKind(ABC):
    """A kind of run; it has no state.

    For people: ``program`` is what carries a run out, ``unset`` says whose values hold where nothing is set.

    ``record_folder``, below a run's working folder, is where record and models are left, and ``reasons`` find in its
    log why it ended, the best first. ``job_file``, below the job, holds all that makes one run differ from another.
    """

    program: ClassVar[str]
    unset: ClassVar[str]
    record_folder: ClassVar[Path]
    reasons: ClassVar[tuple[re.Pattern[str], ...]]
    job_file: ClassVar[Path]

    @property
    @abstractmethod
    def names(self) -> Collection[str]:
        """The names of its methods, without parts that may be added."""

    def knows(self, method: str) -> bool:
        """Return whether a method, or the first part of a composition, is of this kind."""
        return method.split("+")[0] in self.names

    @abstractmethod
    def canonical_name(self, text: str) -> str:
        """Return the one name of the method that ``text`` names; ``SettingsError`` if there is none."""

    @abstractmethod
    def settings_of(self, method: str) -> Collection[str]:
        """Return the names of all settings that a run of ``method`` takes."""

    @abstractmethod
    def base_settings(self, protocol: str, dataset: str) -> Mapping[str, Any]:
        """Return what a run is told of a named protocol as settings; one that a method does not have is not for it.

        Raises ``SettingsError`` for an unknown protocol or data set.
        """

    @abstractmethod
    def write_job(self, run: PlannedRun, data: DataFound, working: Path) -> Written:
        """Write the job of a planned run on ``data`` to ``working/job``.

        Raises ``SettingsError``, which names the run, for a setting that does not exist or has a wrong value.
        """

    @abstractmethod
    def command(self, run: PlannedRun, threads: int) -> Sequence[str]:
        """Return the command that carries out ``run`` in its working folder, ``threads`` processes at a time."""

    def difference(self, job: Path, other: Path) -> str:
        """Return the first thing in which two jobs differ, that in ``other`` being now; empty if in none."""
        return difference(read_json(job / self.job_file), read_json(other / self.job_file))


def difference(one: Any, other: Any, where: str = "config") -> str:
    """Return the first place at which two JSON values differ, with both values; empty if they are equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            if found := difference(one.get(key), other.get(key), key):
                return found
        return ""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return next((found for pair in zip(one, other, strict=True) if (found := difference(*pair, where))), "")
    return "" if one == other else f"{where} {one!r} there, {other!r} now"
