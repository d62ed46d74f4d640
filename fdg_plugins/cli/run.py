# SPDX-License-Identifier: Apache-2.0
"""``fdg run``: one run of a federated method, of a reference, or of a job folder, on this machine."""

import os
import shlex
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field
from rich.console import Console
from typer import Argument, Option

from fdg_plugins.cli import options
from fdg_plugins.cli.console import FAILED, INTERRUPTED, say
from fdg_plugins.cli.jobs import foreign_components
from fdg_plugins.errors import DataError, SettingsError, counted
from fdg_plugins.flare.trackers import VARIABLE as TRACKING
from fdg_plugins.flare.trackers import chosen_tracker
from fdg_plugins.lab.engine.run import RunDisplay, check_run, make_launch, settle_run
from fdg_plugins.lab.engine.sources import Asked, FolderJob, JobSource, KeptRun, describe, find_source
from fdg_plugins.lab.sweep.machine import ENGINES, THREADS, EngineName, ignored_settings
from fdg_plugins.lab.sweep.plan import DataFound
from fdg_plugins.lab.sweep.prepare import title_of_data
from fdg_plugins.lab.sweep.run import (
    JOB,
    LOG_FILE,
    RUN_FILE,
    Ending,
    StopOrder,
    carry_out,
    check_new,
    end_earlier,
    held_run,
    listening,
    make_folder,
)
from fdg_plugins.plugins.fields import check_value
from fdg_plugins.plugins.methods import REFERENCES
from fdg_plugins.record.run_files import RESULTS_FILE, RUNS
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import final_table
from fdg_plugins.storage import check_outside, read_json, write_json


def run(
    what: Annotated[str, Argument(metavar="METHOD|JOBFOLDER", help="Such as fedomg+ga, erm or jobs/pacs_fedomg.")],
    dataset: options.DatasetOption = None,
    target: options.TargetOption = None,
    data_root: options.DataRootOption = None,
    protocol: options.ProtocolOption = "paper",
    settings: options.SettingsOption = None,
    sites: options.SitesOption = None,
    engine: Annotated[
        EngineName | None,
        Option(
            help="One process (process), FLARE's simulator (simulator; bit-identical) or a provisioned federation "
            "(poc).",
            show_default="process",
        ),
    ] = None,
    to: Annotated[Path | None, Option(help="A new or empty folder; default: a new one in runs/.")] = None,
    plugin: options.PluginFiles = None,
) -> int:
    """Run a method, a reference or a job folder on this machine.

    The run leaves a folder. Every domain of the data set is a site, or shared by several with --sites; one of them is
    held out and only evaluates. Without a data root, the run is on the STAND-IN: small images that are drawn here.
    Settings and data are checked before anything starts.

    References (erm, irm, groupdro, vrex, iga, fish, fishr) train on the pooled source domains: what could be reached if
    the data were allowed in one place. local trains each source site alone: what a federation must beat. fdg report
    shows them below the methods.

    The folder holds the record (results.json), models, log and job, also of a run that failed or was stopped, which
    fdg resume continues. Nothing is ever overwritten.

    --set model=NAME chooses the network; NAME may also be MODULE:FACTORY, your function or class. --set seed=N
    sets the seed, participation=0.4 the share of the sites that are drawn for each round, and at_once=N how many sites
    compute at a time.

    A job folder runs as it is: options and --set then act through FDG_* variables, as for nvflare simulator, and those
    of your shell apply too. A job that names components of others runs in FLARE's simulator, each site in its own
    process.

    Exit codes: 0 the run has finished, 1 it failed, 2 the request cannot be carried out, 130 it was stopped.

    Examples:

      fdg run fedomg
      fdg run fedomg+ga --target sketch --data-root /data --protocol quick
      fdg run fedavg --dataset rotateddigits --set rounds=5 --to runs/digits
      fdg run fedomg --dataset photos --target sketch --protocol quick
      fdg run jobs/pacs_fedomg --data-root /data --set rounds=20
      fdg run fedavg --set model=my_net:MyNet --set image_size=64
      fdg run erm --target sketch --set steps=2000
      fdg run clipped_fedavg --plugin custom/clipped_fedavg.py
    """
    files = plugin or []
    options.load_plugins(files)
    check_new(to)
    chosen, values = options.choose_data(dataset, data_root), options.read_values(settings)
    values |= {} if sites is None else {"sites": sites}
    seed, at_once, share = (values.pop(name, None) for name in ("seed", "at_once", "participation"))
    check_value("at_once", at_once, options.AT_ONCE)
    check_value("participation", share, Annotated[float, Field(gt=0, le=1)] | None)
    if what in REFERENCES and (engine or at_once or share):
        raise SettingsError(f"{what} is a reference, in one process: no --engine, at_once or participation.")
    with options.brought_networks(values) as networks:
        asked = Asked(what, chosen.dataset, target, seed, protocol, values, share)
        source = _source(asked, chosen, [*files, *networks], engine)
        engine = engine or _engine_for(source, Path(what))
        ENGINES[engine].check_path(to or RUNS)
        if isinstance(source, FolderJob):
            check_outside(Path(what), to or RUNS, "the folder for the run (--to)")
        found = check_run(source)
        with listening() as order:
            folder = make_folder(to, source.run.name, datetime.now())
            copies = [folder / JOB / "app_server" / "custom" / file.name for file in networks]
            kept = describe(source, engine, tuple(map(str, [*(file.absolute() for file in files), *copies])))
            record, ending = follow(folder, source, found, kept, at_once, order)
    return sum_up(folder, source, kept, record, ending)


def _source(asked: Asked, data: options.ChosenData, brings: list[Path], engine: EngineName | None) -> JobSource:
    source = find_source(asked, data.environment(), {name: os.environ[name] for name in ignored_settings(os.environ)})
    if not isinstance(source, FolderJob):
        options.warn_of_unused()
    elif brings:
        raise SettingsError("--plugin, and a custom network, are for a method by name: a job has its custom/.")
    if brings and engine is EngineName.POC:
        raise SettingsError(f"--engine poc takes no code from a job, and this one would bring {brings[0].name}.")
    if tracking := os.environ.get(TRACKING):
        chosen_tracker(None, os.environ)
        source.environment[TRACKING] = tracking
    return source


def _engine_for(source: JobSource, job: Path) -> EngineName:
    """Return the engine of a run for which none is named: one process, where no component may need its own process."""
    if not isinstance(source, FolderJob) or not (foreign := foreign_components(job)):
        return EngineName.PROCESS
    say(f"{source.title} names {foreign[0]}, which is not of this package, so FLARE's simulator runs it")
    return EngineName.SIMULATOR


def follow(
    folder: Path, source: JobSource, data: DataFound, kept: KeptRun, threads: int | None, order: StopOrder
) -> tuple[RunRecord | None, Ending]:
    """Execute a run in ``folder`` until it ends or ``order`` ends it, and leave there what belongs there.

    Returns its last record, if it wrote one, and how it ended.
    """
    engine = ENGINES[kept.engine]
    record: RunRecord | None
    with held_run(folder):
        if end_earlier(folder, engine.results):
            record = RunRecord.read(read_json(folder / engine.results / RESULTS_FILE), RESULTS_FILE, DataError)
            say(f"the run in {folder} had finished after the command that started it was killed")
            ending = Ending(max(0.0, record.seconds - kept.seconds))
        else:
            launch, protocol = make_launch(engine, source, data, folder, threads)
            used = {"threads": launch.environment[THREADS], "at_once": launch.at_once, "stand_in": data.stand_in}
            kept = kept.model_copy(update=used)
            write_json(folder / RUN_FILE, kept.model_dump(mode="json"))
            where = title_of_data(protocol.dataset, stand_in=data.stand_in)
            training = f"{counted(protocol.rounds, 'round')} of {protocol.model}"
            say(
                f"{source.title} on {where}, held out {protocol.target}, {training}, in {engine.title}; folder {folder}"
            )
            with RunDisplay(protocol.rounds, Console(highlight=False)) as display:
                ending = carry_out(launch, folder.absolute(), order, display.show)
            record = display.record
        settle_run(folder, engine.results, ending)
        kept = kept.model_copy(update={"seconds": round(kept.seconds + ending.seconds, 1)})
        write_json(folder / RUN_FILE, kept.model_dump(mode="json"))
    return record, ending


def sum_up(folder: Path, source: JobSource, kept: KeptRun, record: RunRecord | None, ending: Ending) -> int:
    """Report how the run ended, where it is and what comes next; return the exit code."""
    if ending.reason is None and record is not None:
        # Of a job folder, the plug-in files are those that the job brought.
        brought = [
            path for path in sorted((folder / JOB).glob("*/custom/*.py")) if path.stem in record.protocol.plugins
        ]
        given = options.words_for(folder, kept.plugins or {path.stem: path for path in brought}.values())
        say(f"{final_table(record)}\nrecord, models and log: {folder}")
        say(f"next: fdg plot convergence {shlex.quote(str(folder))}\n      fdg report {given}")
        return 0
    after = f" after round {len(record.rounds)}" if record is not None and record.rounds else ""
    root = source.environment.get("FDG_DATA_ROOT")
    resuming = shlex.join(["fdg", "resume", str(folder), *(("--data-root", root) if root else ())])
    log = f"the log is {folder / LOG_FILE}"
    if ending.status == "stopped":
        say(f"stopped{after}; {log}\nresume with: {resuming}", on_stderr=True)
        return INTERRUPTED
    say(f"the run failed{after}: {str(ending.reason).rstrip('.')}; {log}", "red", on_stderr=True)
    say(f"once the cause is gone, resume with: {resuming}", on_stderr=True)
    return FAILED
