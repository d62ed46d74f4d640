# SPDX-License-Identifier: Apache-2.0
"""One run from the checks before it to what its folder holds in the end; whatever happens, no process of it is left."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fdg_plugins.controllers.kept_results import KEPT
from fdg_plugins.errors import DataError
from fdg_plugins.lab.engine.sources import FolderJob, JobSource
from fdg_plugins.lab.sweep.execute import StopOrder, follow
from fdg_plugins.lab.sweep.folder import settle
from fdg_plugins.lab.sweep.kinds import FederatedRuns, Launch, launch
from fdg_plugins.lab.sweep.machine import Machine, available_cores, sites_at_once
from fdg_plugins.lab.sweep.prepare import check_machine, check_shares, check_weights_of, look_at_data
from fdg_plugins.lab.sweep.processes import RunProcess
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.objectives import check_any_network, check_brought_network
from fdg_plugins.record.run_files import RESULTS_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import read_json, write_json
from fdg_plugins.tasks import TASKS

STOPPED = "the user stopped the run"


class Ending(NamedTuple):
    """How a run ended: its last record, if it wrote one, its duration, and why it did not finish (None: it did).

    ``stopped``: the user has ended it.
    """

    record: RunRecord | None
    seconds: float
    reason: str | None
    stopped: bool = False


def check_run(source: JobSource) -> DataFound:
    """Return the images on which the run will be; writes only to a temporary folder.

    Settings are checked first, since a stand-in may have to be drawn. Raises ``SettingsError`` or ``DataError`` for
    every foreseeable failure of the run.
    """
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
        protocol = source.write_job(DataFound(stand_in=False, images={}), Path(folder)).protocol
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
    engine: FederatedRuns, source: JobSource, data: DataFound, folder: Path, threads: int | None
) -> tuple[Launch, Protocol]:
    """Write the job to the run's ``folder``; return what ``engine`` is to execute, and the protocol of the run.

    ``threads`` is the number of sites that compute at a time; by default (None) as many as the engine has processes, or
    as ``fdg doctor`` advises on a machine with enough memory. The cores are divided between them, unless the user has
    set ``FDG_THREADS``.
    """
    folder = folder.absolute()
    written = source.write_job(data, folder)
    cores = available_cores()
    if threads is None and engine.processes is None:
        threads = sites_at_once(written.sites, cores, fitting=written.sites)
    machine = Machine(cores, (None,), threads)
    return launch(engine, source.run, folder, written.sites, machine, source.environment), written.protocol


def carry_out(launch: Launch, folder: Path, show: Callable[[RunRecord], None], order: StopOrder) -> Ending:
    """Execute a run until it ends, or until ``order`` ends it; ``show`` receives each state of its record.

    A run that cannot be started, or whose record cannot be read, has failed like any other.
    """
    if order.signal is not None:
        return Ending(None, 0.0, STOPPED, stopped=True)
    found: list[tuple[object, RunRecord]] = []

    def look() -> None:
        content = process.record()
        if content is not None and not (found and content is found[-1][0]):
            found[:] = [(content, RunRecord.read(content, RESULTS_FILE, DataError))]
            show(found[-1][1])

    try:
        process = RunProcess(folder.absolute(), launch.command)
        seconds = follow(process, order, look)
        look()
    except DataError as error:
        return Ending(None, 0.0, str(error))
    record = found[-1][1] if found else None
    if record is not None and record.status == "finished":  # however its process ended
        return Ending(record, seconds, None)
    if order.signal is not None:
        return Ending(record, seconds, STOPPED, stopped=True)
    return Ending(record, seconds, process.failure())


def settle_run(folder: Path, results: Path, ending: Ending) -> None:
    """Leave in ``folder`` what an ended run has produced; a record that says that it is running says why it stopped.

    Whoever was killed could not say so.
    """
    settle(folder, results, KEPT, finished=ending.reason is None)
    file = folder / RESULTS_FILE
    if ending.reason is None or not file.exists():
        return
    try:
        record = read_json(file)
    except DataError:  # a damaged file, which the run would have replaced from its state
        return
    if isinstance(record, dict) and record.get("status") == "running":
        write_json(file, {**record, "status": "stopped", "stopped_because": ending.reason})
