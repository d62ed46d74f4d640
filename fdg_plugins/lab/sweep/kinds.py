# SPDX-License-Identifier: Apache-2.0
"""The kind of run of a method, by its name alone, and the function that starts a run on this machine."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.sweep.execute import Start
from fdg_plugins.lab.sweep.jobs import FederatedRuns
from fdg_plugins.lab.sweep.machine import Machine, run_environment
from fdg_plugins.lab.sweep.one_process import OneProcessRuns
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.references import ReferenceRuns
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.lab.sweep.run_kind import RunKind, Written
from fdg_plugins.lab.sweep.run_process import RunProcess
from fdg_plugins.lab.sweep.store import JOB, STATE
from fdg_plugins.naming import did_you_mean
from fdg_plugins.values import shorten

KINDS: tuple[RunKind, ...] = (FederatedRuns(), ReferenceRuns())

_IN_ONE_PROCESS = OneProcessRuns()


def kind_of(method: str) -> RunKind:
    """Return the kind of run of ``method``; raise ``SettingsError``, with a near match, if the name is unknown."""
    for kind in KINDS:
        if kind.knows(method):
            return kind
    known = [name for kind in KINDS for name in kind.names]
    raise SettingsError(
        f"method is {shorten(method)}, which is neither a federated method nor a centralised reference; "
        f"{did_you_mean(method.split('+')[0], known)}"
    )


def canonical_method(text: str) -> str:
    """Return the canonical name of the method that ``text`` names; raise ``SettingsError`` if there is none."""
    return kind_of(text).canonical_name(text)


def executing(method: str, *, in_one_process: bool) -> RunKind:
    """Return what executes a run of ``method``: its kind, or for a federated one the process that it is run in."""
    kind = kind_of(method)
    return _IN_ONE_PROCESS if in_one_process and isinstance(kind, FederatedRuns) else kind


def launcher(machine: Machine, data: DataFound, environment: Mapping[str, str], *, in_one_process: bool) -> Start:
    """Return the function that starts a run on ``data``; ``environment`` is that of all runs."""

    def start(run: PlannedRun, working: Path, gpu: str | None) -> RunProcess:
        kind = executing(run.method, in_one_process=in_one_process)
        processes = sites = _write_job(kind, run, data, working).processes
        if kind is _IN_ONE_PROCESS:
            processes = machine.threads or processes
        own = run_environment(environment, working, machine.arithmetic_threads(processes), gpu)
        return RunProcess(run, kind, working, kind.command(run, machine.threads_of(processes), sites), own)

    return start


def _write_job(kind: RunKind, run: PlannedRun, data: DataFound, working: Path) -> Written:
    """Write the job of a run to its working folder; the state of an interrupted run is removed if its job differs."""
    if (working / JOB).exists():
        written = same_job(kind, run, data, working)
        if written is not None:
            return written
        for name in (STATE, JOB):  # as long as the job is there, what it left is known to be of another one
            shutil.rmtree(working / name)
    return kind.write_job(run, data, working)


def same_job(kind: RunKind, run: PlannedRun, data: DataFound, working: Path) -> Written | None:
    """Return the facts about a run whose job is the one in its working folder; None if the job differs."""
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
        written = kind.write_job(run, data, Path(folder))
        return None if kind.difference(working / JOB, Path(folder, JOB)) else written
