# SPDX-License-Identifier: Apache-2.0
"""One run from the checks before it to what its folder holds in the end."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from fdg_plugins.errors import DataError
from fdg_plugins.lab.engine.sources import FolderJob, JobSource
from fdg_plugins.lab.sweep.machine import Engine, Machine, available_cores, launch, sites_at_once
from fdg_plugins.lab.sweep.plan import DataFound
from fdg_plugins.lab.sweep.prepare import check_machine, check_protocols, look_at_data
from fdg_plugins.lab.sweep.run import Ending, Launch, settle
from fdg_plugins.record.run_files import KEPT, RESULTS_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import duration, evaluation_line, round_line, seconds_left
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import read_json, write_json, writing
from fdg_plugins.tasks import TASKS


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
    engine: Engine, source: JobSource, data: DataFound, folder: Path, threads: int | None
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
    return launch(engine, folder, job.sites, Machine(cores, (None,), threads), source.environment), job.protocol


def settle_run(folder: Path, results: Path, ending: Ending) -> None:
    """Leave in ``folder`` what a run has produced; the record of one that was killed says why it stopped."""
    settle(folder, results, KEPT, finished=ending.reason is None)
    file, record = folder / RESULTS_FILE, None
    with suppress(DataError):  # of no file, or of a damaged one, which the run would have replaced from its state
        record = read_json(file)
    if ending.reason is not None and isinstance(record, dict) and record.get("status") == "running":
        write_json(file, {**record, "status": "stopped", "stopped_because": ending.reason})


class RunDisplay(Progress):
    """What a person sees of a run: a bar of its ``rounds`` at a terminal, a line for each where output is kept.

    ``record`` is the last one shown.
    """

    def __init__(self, rounds: int, console: Console) -> None:
        words = TextColumn("{task.description}", markup=False)
        columns = (TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), words, SpinnerColumn())
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.record: RunRecord | None = None
        self._bar = self.add_task("starting", total=rounds)
        self._rounds_told = 0
        self._has_told_end = False

    def show(self, content: Any) -> None:
        """Bring the bar up to date, or print a line for each round since the last call; name each report refused.

        ``content``: the record as a JSON value; raises ``DataError`` if it is not one.
        """
        record = self.record = RunRecord.read(content, RESULTS_FILE, DataError)
        # Each round evaluates the model that it starts from.
        for finished, received in list(zip(record.rounds, record.evaluations, strict=False))[self._rounds_told :]:
            if self.disable:
                self._say(round_line(record, finished, received))
            for site, reason in finished.refused_reports.items():
                self._say(f"round {finished.round}: the report of site {site} was refused: {reason}")
        self._rounds_told = len(record.rounds)
        if not self.disable:
            self._move(record)
        elif record.status == "finished" and not self._has_told_end:
            self._has_told_end = True
            last = next(one for one in reversed(record.evaluations) if not one.undone)
            self._say(evaluation_line(record, last))

    def _say(self, line: str) -> None:
        """Print one line as it is, above the bar: no markup is read in it, and it is not broken."""
        self.console.print(Text(line), soft_wrap=True)

    def _move(self, record: RunRecord) -> None:
        text, latest = record.score.text, record.evaluations[-1] if record.evaluations else None
        scores = [] if latest is None else [f"source {text(latest.source_mean)}", f"target {text(latest.target)}"]
        words = [*scores, "starting"]
        if record.rounds:
            last = record.rounds[-1]
            left = f"ETA {duration(seconds_left(record, last.round))}"
            words = [f"sites {len(last.sites)}/{len(last.drawn)}", *scores, left]
        self.update(self._bar, completed=len(record.rounds), description=" ".join(words))
