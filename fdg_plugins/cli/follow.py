# SPDX-License-Identifier: Apache-2.0
"""Execute one run in its folder, show it, and say how it ended: common to ``fdg run`` and ``fdg resume``."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fdg_plugins.cli.console import FAILED, INTERRUPTED, say
from fdg_plugins.cli.options import plugin_words
from fdg_plugins.errors import DataError, counted
from fdg_plugins.record.run_files import RESULTS_FILE

if TYPE_CHECKING:
    from fdg_plugins.lab.engine.kept import KeptRun
    from fdg_plugins.lab.engine.run import Ending
    from fdg_plugins.lab.engine.sources import JobSource
    from fdg_plugins.lab.sweep.execute import StopOrder
    from fdg_plugins.lab.sweep.plan import DataFound


def follow(
    folder: Path, source: "JobSource", data: "DataFound", kept: "KeptRun", threads: int | None, order: "StopOrder"
) -> "Ending":
    """Execute a run in ``folder`` until it ends or ``order`` ends it, and leave there what belongs there."""
    from fdg_plugins.lab.engine.run import ENGINES, Ending, RunDisplay, carry_out, make_launch, settle_run
    from fdg_plugins.lab.sweep.folder import RUN_FILE, end_earlier, held_run
    from fdg_plugins.lab.sweep.prepare import title_of_data
    from fdg_plugins.record.run_record import RunRecord
    from fdg_plugins.storage import read_json, write_json

    engine = ENGINES[kept.engine]
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


def sum_up(folder: Path, source: "JobSource", kept: "KeptRun", ending: "Ending") -> int:
    """Report how the run ended, where it is and what comes next; return the exit code."""
    from fdg_plugins.lab.sweep.processes import LOG_FILE
    from fdg_plugins.record.text import final_table

    if ending.reason is None and ending.record is not None:
        say(final_table(ending.record))
        say(f"record, models and log: {folder}")
        plugins = kept.plugins or _brought(folder, ending.record.protocol.plugins)
        given = shlex.join([str(folder), *plugin_words(plugins)])
        say(f"next: fdg plot convergence {given}\n      fdg report {given}")
        return 0
    rounds = 0 if ending.record is None else len(ending.record.rounds)
    after = f" after round {rounds}" if rounds else ""
    root = source.environment.get("FDG_DATA_ROOT")
    resuming = shlex.join(["fdg", "resume", str(folder), *(("--data-root", root) if root else ())])
    if ending.stopped:
        say(f"stopped{after}; the log is {folder / LOG_FILE}", on_stderr=True)
        say(f"go on with: {resuming}", on_stderr=True)
        return INTERRUPTED
    reason = str(ending.reason).rstrip(".")
    say(f"the run failed{after}: {reason}; the log is {folder / LOG_FILE}", "red", on_stderr=True)
    say(f"once the cause is gone, go on with: {resuming}", on_stderr=True)
    return FAILED


def _brought(folder: Path, names: Sequence[str]) -> list[str]:
    """Return the plug-in files, by their names, that the job of a run brought, as they are in the run's folder."""
    from fdg_plugins.lab.sweep.folder import JOB

    found = {path.stem: str(path) for path in sorted((folder / JOB).glob("*/custom/*.py"))}
    return [found[name] for name in names if name in found]
