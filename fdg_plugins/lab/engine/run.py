# SPDX-License-Identifier: Apache-2.0
"""One run from the checks before it to what its folder holds in the end; whatever happens, no process of it is left."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import SpinnerColumn, TextColumn

from fdg_plugins.errors import DataError
from fdg_plugins.lab.engine import EngineName
from fdg_plugins.lab.engine.sources import FolderJob, JobSource
from fdg_plugins.lab.poc.kits import SHELL_SIGNS
from fdg_plugins.lab.sweep.execute import StopOrder, follow
from fdg_plugins.lab.sweep.folder import JOB, WORKSPACE, settle
from fdg_plugins.lab.sweep.kinds import FEDERATED, IN_ONE_PROCESS, FederatedRuns, launch
from fdg_plugins.lab.sweep.machine import STATE, Machine, available_cores, sites_at_once
from fdg_plugins.lab.sweep.plan import DataFound, PlannedRun
from fdg_plugins.lab.sweep.prepare import check_machine, check_protocols, look_at_data
from fdg_plugins.lab.sweep.processes import Launch, RunProcess
from fdg_plugins.record.display import Display
from fdg_plugins.record.run_files import KEPT, RESULTS_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import duration, evaluation_line, round_line, seconds_left
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import read_json, write_json, writing
from fdg_plugins.tasks import TASKS

STOPPED = "the user stopped the run"
FIELDS = ("sites", "source", "target", "left")  # beside the bar
# A module that is higher in the order of imports; it is run, not imported.
FEDERATION = (sys.executable, "-P", "-m", "fdg_plugins.cli.one_federation")
RESULTS = "results"


class ProvisionedRuns(FederatedRuns):
    """Runs in a federation that is provisioned, started and ended for each: participants authenticate each other."""

    title = "a separate federation"
    results = Path(WORKSPACE, RESULTS)
    split_at = SHELL_SIGNS

    def words(self, run: PlannedRun, at_once: int, sites: int) -> Sequence[str]:
        """Return the command that executes the job; every site computes when it has a task, whatever ``at_once``."""
        return (*FEDERATION, JOB, WORKSPACE, STATE)


ENGINES = {EngineName.SIMULATOR: FEDERATED, EngineName.PROCESS: IN_ONE_PROCESS, EngineName.POC: ProvisionedRuns()}


class Ending(NamedTuple):
    """How a run ended: its last record, if it wrote one, its duration, and why it did not finish (None: it did)."""

    record: RunRecord | None
    seconds: float
    reason: str | None


def check_run(source: JobSource) -> DataFound:
    """Return the images on which the run will be; raise for every foreseeable failure of the run.

    Settings are checked first, since a stand-in may have to be drawn.
    """
    TASKS.get(source.job(stand_in=False).protocol.task).check_packages()
    check_machine(source.environment)
    # The sites of a job folder may hold some of the domains only.
    targets = () if isinstance(source, FolderJob) else (source.run.target,)
    data = look_at_data(source.run.dataset, source.environment, targets)
    check_protocols([source.job(stand_in=data.stand_in).protocol], source.environment)
    return data


def make_launch(
    engine: FederatedRuns, source: JobSource, data: DataFound, folder: Path, threads: int | None
) -> tuple[Launch, Protocol]:
    """Write the job to the run's ``folder``; return what ``engine`` is to execute, and the protocol of the run.

    ``threads`` is the number of sites that compute at a time; by default (None) as many as the engine has processes, or
    as ``fdg doctor`` advises on a machine with enough memory.
    """
    folder, job = folder.absolute(), source.job(stand_in=data.stand_in)
    with writing(folder):
        job.write(folder)
    cores = available_cores()
    if threads is None and engine.processes is None:
        threads = sites_at_once(job.sites, cores, fitting=job.sites)
    machine = Machine(cores, (None,), threads)
    return launch(engine, source.run, folder, job.sites, machine, source.environment), job.protocol


def carry_out(launch: Launch, folder: Path, show: Callable[[RunRecord], None], order: StopOrder) -> Ending:
    """Execute a run until it ends, or until ``order`` ends it; ``show`` receives each state of its record.

    A run that cannot be started, or whose record cannot be read, has failed like any other.
    """
    if order.signal is not None:
        return Ending(None, 0.0, STOPPED)
    found: list[tuple[object, RunRecord]] = []

    def look() -> None:
        content = process.record()
        if content is not None and not (found and content is found[-1][0]):
            found[:] = [(content, RunRecord.read(content, RESULTS_FILE, DataError))]
            show(found[-1][1])

    try:
        process = RunProcess(folder.absolute(), launch)
        seconds = follow(process, order, look)
        look()
    except DataError as error:
        return Ending(None, 0.0, str(error))
    record = found[-1][1] if found else None
    if record is not None and record.status == "finished":  # however its process ended
        return Ending(record, seconds, None)
    return Ending(record, seconds, process.failure() if order.signal is None else STOPPED)


def settle_run(folder: Path, results: Path, ending: Ending) -> None:
    """Leave in ``folder`` what a run has produced; the record of one that was killed says why it stopped."""
    settle(folder, results, KEPT, finished=ending.reason is None)
    file, record = folder / RESULTS_FILE, None
    with suppress(DataError):  # of no file, or of a damaged one, which the run would have replaced from its state
        record = read_json(file)
    if ending.reason is not None and isinstance(record, dict) and record.get("status") == "running":
        write_json(file, {**record, "status": "stopped", "stopped_because": ending.reason})


class RunDisplay(Display):
    """What a person sees of a run: a bar of its ``rounds`` at a terminal, a line for each where output is kept."""

    def __init__(self, rounds: int, console: Console) -> None:
        columns = [TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in FIELDS]
        empty = {**dict.fromkeys(FIELDS, ""), "left": "starting"}
        super().__init__(console, "rounds", rounds, [*columns, SpinnerColumn()], fields=empty)
        self._rounds_told = 0
        self._has_told_end = False

    def show(self, record: RunRecord) -> None:
        """Bring the bar up to date, or print a line for each round since the last call; name each report refused."""
        # Each round evaluates the model that it starts from.
        for finished, received in list(zip(record.rounds, record.evaluations, strict=False))[self._rounds_told :]:
            if not self.has_bar:
                self.say(round_line(record, finished, received))
            for site, reason in finished.refused_reports.items():
                self.say(f"round {finished.round}: the report of site {site} was refused: {reason}")
        self._rounds_told = len(record.rounds)
        if self.has_bar:
            self._move(record)
        elif record.status == "finished" and not self._has_told_end:
            self._has_told_end = True
            last = next(one for one in reversed(record.evaluations) if not one.undone)
            self.say(evaluation_line(record, last))

    def _move(self, record: RunRecord) -> None:
        text, latest = record.score.text, record.evaluations[-1] if record.evaluations else None
        fields = {"left": "starting"}
        if latest is not None:
            fields |= {"source": f"source {text(latest.source_mean)}", "target": f"target {text(latest.target)}"}
        if record.rounds:
            last = record.rounds[-1]
            left = duration(seconds_left(record, last.round))
            fields |= {"sites": f"sites {len(last.sites)}/{len(last.drawn)}", "left": f"ETA {left}"}
        self.move(len(record.rounds), **fields)
