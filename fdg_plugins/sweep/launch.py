# SPDX-License-Identifier: Apache-2.0
"""How a planned run is started on this machine: its job written, the process of its kind started in its folder."""

from collections.abc import Mapping
from pathlib import Path

from fdg_plugins.sweep.execute import Start
from fdg_plugins.sweep.kinds import kind_of
from fdg_plugins.sweep.machine import Machine, run_environment
from fdg_plugins.sweep.plan import PlannedRun
from fdg_plugins.sweep.request import DataFound
from fdg_plugins.sweep.run_process import RunProcess


def launcher(machine: Machine, data: DataFound, environment: Mapping[str, str]) -> Start:
    """Return what starts a run on ``data``; ``environment`` is that of all runs."""

    def start(run: PlannedRun, working: Path, gpu: str | None) -> RunProcess:
        kind = kind_of(run.method)
        processes = kind.write_job(run, data, working).work.kind.processes
        own = run_environment(environment, working, machine.arithmetic_threads(processes), gpu)
        return RunProcess(run, kind, working, kind.command(run, machine.threads_of(processes)), own)

    return start
