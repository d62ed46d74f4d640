# SPDX-License-Identifier: Apache-2.0
"""``fdg run``: one run of a federated method, or of a job folder, on this machine."""

import os
import shlex
from collections.abc import Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fdg_plugins.cli.centralised import read_values
from fdg_plugins.cli.console import say
from fdg_plugins.cli.plugins import PluginFiles, load_plugins
from fdg_plugins.cli.run_options import (
    DataRootOption,
    DatasetOption,
    EngineOption,
    ProtocolOption,
    SeedOption,
    SettingsOption,
    TargetOption,
    ThreadsOption,
    ToOption,
    WhatArgument,
)
from fdg_plugins.cli.sweep import FAILED, INTERRUPTED
from fdg_plugins.cli.sweep_options import ProtocolName
from fdg_plugins.engine.names import EngineName

if TYPE_CHECKING:
    from fdg_plugins.engine.engine import Engine
    from fdg_plugins.engine.execute import Ending
    from fdg_plugins.engine.sources import Asked, JobSource
    from fdg_plugins.sweep.request import DataFound


def run(
    what: WhatArgument,
    dataset: DatasetOption = None,
    target: TargetOption = None,
    data_root: DataRootOption = None,
    seed: SeedOption = None,
    protocol: ProtocolOption = ProtocolName.PAPER,
    settings: SettingsOption = None,
    threads: ThreadsOption = None,
    engine: EngineOption = EngineName.SIMULATOR,
    to: ToOption = None,
    plugin: PluginFiles = None,
) -> None:
    """Run a federated method, or a job folder, on this machine, and keep what it leaves in a folder of its own.

    Every domain of the data set is a site; one of them is held out and only
    evaluates. Without a data root, the run is on the STAND-IN: small images
    that are drawn here. Settings and data are checked before anything starts.

    The folder holds the record (results.json), models, log and job, also of a
    run that failed or was stopped. Nothing is ever overwritten.

    A job folder runs as it is: options and --set then act through FDG_*
    variables, as for nvflare simulator, and those of your shell apply too.
    The settings of a method come from its recipe and --set alone.

    Exit codes: 0 the run has finished, 1 it failed, 2 the request cannot be
    carried out, 130 it was stopped.

    Examples:

      fdg run fedomg

      fdg run fedomg+ga --target sketch --data-root /data --protocol quick

      fdg run fedavg --dataset rotateddigits --set rounds=5 --to runs/digits

      fdg run jobs/pacs_fedomg --data-root /data --set rounds=20

      fdg run clipped_fedavg --plugin custom/clipped_fedavg.py
    """
    from fdg_plugins.engine.engines import ENGINES
    from fdg_plugins.engine.folder import RUNS, check_new
    from fdg_plugins.engine.prepare import check_run
    from fdg_plugins.engine.sources import Asked

    files = plugin or []
    load_plugins(files)
    chosen = ENGINES[engine]
    chosen.check_folder(to or RUNS)
    check_new(to)
    asked = Asked(what, dataset, target, seed, protocol.value, read_values(settings or []))
    source = _source(asked, data_root, files)
    data = check_run(source)
    folder, ending = _carry_out(chosen, engine, source, data, to, threads)
    raise typer.Exit(_sum_up(folder, ending, files))


def _source(asked: "Asked", data_root: Path | None, plugins: Sequence[Path]) -> "JobSource":
    """Return the source of the run's job; say which variables of the user's shell are not used."""
    from fdg_plugins.engine.sources import FolderJob, find_source
    from fdg_plugins.errors import SettingsError
    from fdg_plugins.sweep.machine import ignored_settings, machine_environment

    shell = {name: os.environ[name] for name in ignored_settings(os.environ)}
    source = find_source(asked, machine_environment(os.environ, data_root), shell)
    if not isinstance(source, FolderJob):
        for name in shell:
            say(f"Warning: {name} is not used: the settings of a run come from --set.", "yellow", on_stderr=True)
    elif plugins:
        raise SettingsError("--plugin is for a method by name, expected a job that brings its files in custom/.")
    return source


def _carry_out(
    engine: "Engine", name: EngineName, source: "JobSource", data: "DataFound", to: Path | None, threads: int | None
) -> tuple[Path, "Ending"]:
    """Make the folder, execute the run in it, and leave there what belongs there; Ctrl-C and SIGTERM end the run."""
    from rich.console import Console

    from fdg_plugins.engine.execute import carry_out
    from fdg_plugins.engine.folder import make_folder, settle
    from fdg_plugins.engine.prepare import make_launch
    from fdg_plugins.engine.progress import RunDisplay
    from fdg_plugins.sweep.execute import listening
    from fdg_plugins.sweep.overview import title_of_data

    with listening() as order:
        folder = make_folder(to, source.run.name, datetime.now())
        launch, protocol = make_launch(source, data, folder, threads)
        where = title_of_data(protocol.dataset, stand_in=data.stand_in)
        rounds = f"{protocol.rounds} round{'s' * (protocol.rounds > 1)}"
        say(f"{source.title} on {where}, held out {protocol.target}, {rounds}, in {engine.title}; folder {folder}")
        with RunDisplay(protocol.rounds, Console(highlight=False)) as display:
            ending = carry_out(engine, launch, display, order)
        content = {**source.run._asdict(), "engine": name.value, "seconds": round(ending.seconds, 1)}
        settle(launch.folder, engine.results, content, ending.reason)
    return folder, ending


def _sum_up(folder: Path, ending: "Ending", plugins: Sequence[Path]) -> int:
    """Report how the run ended, where it is and what comes next; return the exit code."""
    from fdg_plugins.record.text import final_table
    from fdg_plugins.sweep.store import LOG_FILE

    if ending.reason is None and ending.record is not None:
        say(final_table(ending.record))
        say(f"record, models and log: {folder}")
        _show_next(folder, plugins)
        return 0
    if ending.stopped:
        say(f"stopped; the log is {folder / LOG_FILE}", on_stderr=True)
        return INTERRUPTED
    say(f"the run failed: {str(ending.reason).rstrip('.')}; the log is {folder / LOG_FILE}", "red", on_stderr=True)
    return FAILED


def _show_next(folder: Path, plugins: Sequence[Path]) -> None:
    """Print the commands that show the run, as they can be typed."""
    given = [str(folder), *(text for file in plugins for text in ("--plugin", str(file)))]
    needs = "" if find_spec("matplotlib") else "  # needs matplotlib: pip install matplotlib"
    say(f"next: fdg plot convergence {shlex.join(given)}{needs}")
    say(f"      fdg report {shlex.join(given)}")
