# SPDX-License-Identifier: Apache-2.0
"""How a planned run is started on this machine: its job written, the simulator started in its folder."""

import sys
from collections.abc import Mapping
from pathlib import Path

from fdg_plugins.sweep.execute import Start
from fdg_plugins.sweep.jobs import write_job
from fdg_plugins.sweep.machine import Machine, run_environment
from fdg_plugins.sweep.plan import PlannedRun
from fdg_plugins.sweep.simulation import Simulation

SIMULATOR = (str(Path(sys.executable).with_name("nvflare")), "simulator")


def launcher(machine: Machine, sites: int, environment: Mapping[str, str]) -> Start:
    """Return what starts a run of so many ``sites``; ``environment`` is that of all runs."""

    def start(run: PlannedRun, working: Path, gpu: str | None) -> Simulation:
        write_job(run, working)
        own = run_environment(environment, working, machine.arithmetic_threads(sites), gpu)
        return Simulation(run, working, machine.threads_of(sites), own, SIMULATOR)

    return start
