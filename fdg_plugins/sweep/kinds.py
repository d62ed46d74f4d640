# SPDX-License-Identifier: Apache-2.0
"""The kind of run of a method, by its name alone, and the function that starts a run on this machine."""

from collections.abc import Mapping
from pathlib import Path

from fdg_plugins.errors import SettingsError
from fdg_plugins.naming import did_you_mean
from fdg_plugins.sweep.execute import Start
from fdg_plugins.sweep.jobs import FederatedRuns
from fdg_plugins.sweep.machine import Machine, run_environment
from fdg_plugins.sweep.plan import PlannedRun
from fdg_plugins.sweep.references import ReferenceRuns
from fdg_plugins.sweep.request import DataFound
from fdg_plugins.sweep.run_kind import RunKind
from fdg_plugins.sweep.run_process import RunProcess
from fdg_plugins.values import shorten

KINDS: tuple[RunKind, ...] = (FederatedRuns(), ReferenceRuns())


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


def launcher(machine: Machine, data: DataFound, environment: Mapping[str, str]) -> Start:
    """Return the function that starts a run on ``data``; ``environment`` is that of all runs."""

    def start(run: PlannedRun, working: Path, gpu: str | None) -> RunProcess:
        kind = kind_of(run.method)
        processes = kind.write_job(run, data, working).processes
        own = run_environment(environment, working, machine.arithmetic_threads(processes), gpu)
        return RunProcess(run, kind, working, kind.command(run, machine.threads_of(processes)), own)

    return start
