# SPDX-License-Identifier: Apache-2.0
"""The extension point of a sweep: a kind of run, such as FLARE's simulations, or references without FLARE.

A kind knows the methods that it runs, their settings, the description of a run in a folder ``job``, the command that
starts it, and the location of its record. The rest of a sweep is the same for all kinds.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import read_json


class Written(NamedTuple):
    """The facts known about a run once its job is written: its protocol, and the number of its computing processes."""

    protocol: Protocol
    processes: int


class RunKind(ABC):
    """A kind of run; it has no state.

    For messages: ``program`` names the program that executes a run, ``unset`` says whose values apply by default.

    ``record_folder``, relative to a run's working folder, holds record and models; ``reasons`` are patterns that find
    in its log why it ended, the best first. ``job_file``, relative to the job, determines the run completely.
    """

    program: ClassVar[str]
    unset: ClassVar[str]
    record_folder: ClassVar[Path]
    reasons: ClassVar[tuple[re.Pattern[str], ...]]
    job_file: ClassVar[Path]

    @property
    @abstractmethod
    def names(self) -> Collection[str]:
        """The names of its methods, without composable parts."""

    def knows(self, method: str) -> bool:
        """Return whether a method, or the first part of a composition, is of this kind."""
        return method.split("+")[0] in self.names

    @abstractmethod
    def canonical_name(self, text: str) -> str:
        """Return the canonical name of the method that ``text`` names; raise ``SettingsError`` if there is none."""

    @abstractmethod
    def settings_of(self, method: str) -> Collection[str]:
        """Return the names of all settings of a run of ``method``."""

    @abstractmethod
    def base_settings(self, protocol: str, dataset: DatasetRef, method: str) -> Mapping[str, Any]:
        """Return a named protocol as settings of a run of ``method``, which ignores those that it does not have.

        Raises ``SettingsError`` for an unknown protocol or data set.
        """

    @abstractmethod
    def write_job(self, run: PlannedRun, data: DataFound, working: Path) -> Written:
        """Write the job of a planned run on ``data`` to ``working/job``; return its protocol and processes.

        Raises ``SettingsError``, naming the run, for a setting that does not exist or has an invalid value.
        """

    @abstractmethod
    def command(self, run: PlannedRun, threads: int, sites: int) -> Sequence[str]:
        """Return the command that executes ``run`` in its working folder, ``threads`` of its ``sites`` at a time."""

    def difference(self, job: Path, other: Path) -> str:
        """Return the first difference between two jobs, where ``other`` is the current one; empty if there is none."""
        return difference(read_json(job / self.job_file), read_json(other / self.job_file))


def difference(one: Any, other: Any, where: str = "config") -> str:
    """Return the first place at which two JSON values differ, with both values; empty if they are equal."""
    if one == other:
        return ""
    parts = _parts(one, other, where)
    if parts is None:
        return f"{where} {one!r} there, {other!r} now"
    return next(filter(None, starmap(difference, parts)), "")


def _parts(one: Any, other: Any, where: str) -> list[tuple[Any, Any, str]] | None:
    """Return the values to compare in two mappings, or in two lists of one length, with their place; else None."""
    kinds = {type(one), type(other)}
    if kinds == {dict}:
        return [(one.get(key), other.get(key), key) for key in sorted({*one, *other})]
    if kinds == {list} and len(one) == len(other):
        return [(*pair, where) for pair in zip(one, other, strict=True)]
    return None
