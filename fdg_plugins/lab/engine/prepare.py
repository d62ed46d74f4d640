# SPDX-License-Identifier: Apache-2.0
"""The last steps before a run: its settings and data are checked, and its share of the machine is known."""

import tempfile
from pathlib import Path

from fdg_plugins.lab.engine.engine import Engine, Launch
from fdg_plugins.lab.engine.sources import FolderJob, JobSource
from fdg_plugins.lab.engine.threads import sites_at_once
from fdg_plugins.lab.sweep.machine import Machine, available_cores, run_environment
from fdg_plugins.lab.sweep.prepare import check_machine, check_shares, check_weights_of, look_at_data
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.objectives import check_any_network, check_brought_network
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import TASKS

_UNSEEN = DataFound(stand_in=False, images={})


def check_run(source: JobSource) -> DataFound:
    """Return the images on which the run will be; writes only to a temporary folder.

    Settings are checked first, since a stand-in may have to be drawn. Raises ``SettingsError`` or ``DataError`` for
    every foreseeable failure of the run.
    """
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
        protocol = source.write_job(_UNSEEN, Path(folder)).protocol
    TASKS.get(protocol.task).check_packages()
    check_any_network(protocol)
    check_machine(source.environment)
    # The sites of a job folder may hold some of the domains only.
    targets = () if isinstance(source, FolderJob) else (source.run.target,)
    data = look_at_data(source.run.dataset, source.environment, targets)
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
        protocol = source.write_job(data, Path(folder)).protocol
    check_weights_of([protocol], source.environment)
    check_brought_network(protocol)  # the stand-in has smaller images
    if targets:
        check_shares([protocol], source.run.dataset, source.environment)
    return data


def make_launch(
    engine: Engine, source: JobSource, data: DataFound, folder: Path, threads: int | None
) -> tuple[Launch, Protocol]:
    """Write the job to the run's ``folder``; return what ``engine`` is to execute, and the protocol of the run.

    ``threads`` is the number of sites that compute at a time; by default (None) as many as the engine has processes, or
    as ``fdg doctor`` advises on a machine with enough memory. The cores are divided between them, unless the user has
    set ``FDG_THREADS``.
    """
    folder = folder.absolute()
    written = source.write_job(data, folder)
    sites, cores = written.processes, available_cores()
    if engine.processes is not None and threads is None:
        sites = engine.processes
    machine = Machine(cores, (None,), threads or sites_at_once(sites, cores, fitting=sites))
    environment = run_environment(source.environment, folder, machine.arithmetic_threads(sites), None)
    return Launch(source.run, folder, machine.threads_of(sites), environment, written.processes), written.protocol
