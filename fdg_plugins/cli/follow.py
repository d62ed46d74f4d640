# SPDX-License-Identifier: Apache-2.0
"""Execute one run in its folder, show it, and say how it ended: common to ``fdg run`` and ``fdg resume``."""

import shlex
from pathlib import Path

from rich.console import Console

from fdg_plugins.cli.console import FAILED, INTERRUPTED, say
from fdg_plugins.cli.options import words_for
from fdg_plugins.errors import DataError, counted
from fdg_plugins.lab.engine import run as engine_run
from fdg_plugins.lab.engine.kept import KeptRun
from fdg_plugins.lab.engine.run import Ending, RunDisplay, carry_out, make_launch, settle_run
from fdg_plugins.lab.engine.sources import JobSource
from fdg_plugins.lab.sweep.execute import StopOrder
from fdg_plugins.lab.sweep.folder import JOB, RUN_FILE, end_earlier, held_run
from fdg_plugins.lab.sweep.plan import DataFound
from fdg_plugins.lab.sweep.prepare import title_of_data
from fdg_plugins.lab.sweep.processes import LOG_FILE
from fdg_plugins.record.run_files import RESULTS_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import final_table
from fdg_plugins.storage import read_json, write_json


def follow(
    folder: Path, source: JobSource, data: DataFound, kept: KeptRun, threads: int | None, order: StopOrder
) -> Ending:
    """Execute a run in ``folder`` until it ends or ``order`` ends it, and leave there what belongs there."""
    engine = engine_run.ENGINES[kept.engine]
    with held_run(folder):
        if end_earlier(folder, engine.results):
            record = RunRecord.read(read_json(folder / engine.results / RESULTS_FILE), RESULTS_FILE, DataError)
            say(f"the run in {folder} had finished after the command that started it was killed")
            ending = Ending(record, max(0.0, record.seconds - kept.seconds), None)
        else:
            launch, protocol = make_launch(engine, source, data, folder, threads)
            kept = kept.launched(launch, data)
            write_json(folder / RUN_FILE, kept.after(0.0))
            where = title_of_data(protocol.dataset, stand_in=data.stand_in)
            rounds = counted(protocol.rounds, "round")
            say(f"{source.title} on {where}, held out {protocol.target}, {rounds}, in {engine.title}; folder {folder}")
            with RunDisplay(protocol.rounds, Console(highlight=False)) as display:
                ending = carry_out(launch, folder, display.show, order)
        settle_run(folder, engine.results, ending)
        write_json(folder / RUN_FILE, kept.after(ending.seconds))
    return ending


def sum_up(folder: Path, source: JobSource, kept: KeptRun, ending: Ending) -> int:
    """Report how the run ended, where it is and what comes next; return the exit code."""
    record = ending.record
    if ending.reason is None and record is not None:
        # Of a job folder, the plug-in files are those that the job brought.
        brought = [
            path for path in sorted((folder / JOB).glob("*/custom/*.py")) if path.stem in record.protocol.plugins
        ]
        given = words_for(folder, kept.plugins or {path.stem: path for path in brought}.values())
        say(f"{final_table(record)}\nrecord, models and log: {folder}")
        say(f"next: fdg plot convergence {given}\n      fdg report {given}")
        return 0
    after = f" after round {len(record.rounds)}" if record is not None and record.rounds else ""
    root = source.environment.get("FDG_DATA_ROOT")
    resuming = shlex.join(["fdg", "resume", str(folder), *(("--data-root", root) if root else ())])
    log = f"the log is {folder / LOG_FILE}"
    if ending.stopped:
        say(f"stopped{after}; {log}\nresume with: {resuming}", on_stderr=True)
        return INTERRUPTED
    say(f"the run failed{after}: {str(ending.reason).rstrip('.')}; {log}", "red", on_stderr=True)
    say(f"once the cause is gone, resume with: {resuming}", on_stderr=True)
    return FAILED
