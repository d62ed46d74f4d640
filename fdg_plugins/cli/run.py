# SPDX-License-Identifier: Apache-2.0
"""``fdg run``: one run of a federated method, of a reference on pooled data, or of a job folder, on this machine."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pydantic
import torch
from rich.console import Console
from typer import Argument, Option

from fdg_plugins.cli.console import FAILED, INTERRUPTED, say
from fdg_plugins.cli.follow import follow, sum_up
from fdg_plugins.cli.options import (
    ChosenData,
    DataRootOption,
    DatasetOption,
    PluginFiles,
    ProtocolOption,
    SettingsOption,
    TargetOption,
    brought_networks,
    choose_data,
    load_plugins,
    read_values,
    warn_of_unused,
    words_for,
)
from fdg_plugins.data import dataset_spec, find_data_root
from fdg_plugins.errors import FDGError, SettingsError, Stopped, first_problem
from fdg_plugins.flare.trackers import tracked
from fdg_plugins.lab.centralised.plan import Plan, make_plan
from fdg_plugins.lab.centralised.run import RunDisplay, run_centralised
from fdg_plugins.lab.engine import EngineName
from fdg_plugins.lab.engine import run as engine_run
from fdg_plugins.lab.engine.kept import describe
from fdg_plugins.lab.engine.run import check_run
from fdg_plugins.lab.engine.sources import Asked, FolderJob, JobSource, find_source
from fdg_plugins.lab.sweep.execute import listening
from fdg_plugins.lab.sweep.folder import check_new, make_folder
from fdg_plugins.lab.sweep.machine import ignored_settings
from fdg_plugins.plugins.methods import REFERENCES
from fdg_plugins.record.run_files import RESULTS_FILE, RUNS
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import final_table
from fdg_plugins.settings.site_config import read_site_config
from fdg_plugins.storage import named_path


class OfTheRun(pydantic.BaseModel, extra="forbid"):
    """The values of ``--set`` that are neither the protocol's nor the method's."""

    seed: int | None = pydantic.Field(None, ge=0)
    at_once: int | None = pydantic.Field(None, ge=1)
    participation: float | None = pydantic.Field(None, gt=0, le=1)

    @classmethod
    def take(cls, values: dict[str, Any]) -> "OfTheRun":
        """Take them out of ``values``; raise ``SettingsError`` for one out of range."""
        try:
            return cls.model_validate({name: values.pop(name) for name in cls.model_fields if name in values})
        except pydantic.ValidationError as error:
            raise SettingsError(f"--set: {first_problem(error)}") from error


def run(
    what: Annotated[str, Argument(metavar="METHOD|JOBFOLDER", help="Such as fedomg+ga, erm or jobs/pacs_fedomg.")],
    dataset: DatasetOption = None,
    target: TargetOption = None,
    data_root: DataRootOption = None,
    protocol: ProtocolOption = "paper",
    settings: SettingsOption = None,
    engine: Annotated[
        EngineName,
        Option(help="FLARE's simulator, one process (bit-identical), or a provisioned federation (poc)."),
    ] = EngineName.SIMULATOR,
    to: Annotated[Path | None, Option(help="A new or empty folder; default: a new one in runs/.")] = None,
    plugin: PluginFiles = None,
) -> int:
    """Run a method, a reference or a job folder on this machine.

    The run leaves a folder. Every domain of the data set is a site; one of them is held out and only
    evaluates. Without a data root, the run is on the STAND-IN: small images that are drawn here. Settings and data are
    checked before anything starts.

    References (erm, irm, groupdro, vrex, iga, fish, fishr) train on the pooled source domains in one process: what
    could be reached if the data were allowed in one place. fdg report shows them below the methods.

    The folder holds the record (results.json), models, log and job, also of a run that failed or was stopped, which
    fdg resume continues. Nothing is ever overwritten.

    --set model=NAME chooses the network; NAME may also be MODULE:FACTORY, your function or class. --set seed=N
    sets the seed, participation=0.4 the share of the sites that are drawn for each round, and at_once=N how many sites
    compute at a time.

    A job folder runs as it is: options and --set then act through FDG_* variables, as for nvflare simulator, and those
    of your shell apply too.

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
    load_plugins(files)
    if what not in REFERENCES:
        engine_run.ENGINES[engine].check_path(to or RUNS)
    check_new(to)
    chosen = choose_data(dataset, data_root)
    values = read_values(settings)
    own = OfTheRun.take(values)
    with brought_networks(values) as networks:
        if what in REFERENCES:
            if engine is not EngineName.SIMULATOR or own.at_once or own.participation:
                raise SettingsError(f"{what} is a reference, in one process: no --engine, at_once or participation.")
            pooled = "pacs" if chosen.dataset is None else chosen.dataset
            held_out = dataset_spec(pooled).domains[0] if target is None else target
            plan_for = partial(make_plan, what, pooled, held_out, own.seed or 0, values, protocol=protocol)
            return run_reference(what, plan_for, chosen, to, files)
        asked = Asked(what, chosen.dataset, target, own.seed, protocol, values, own.participation)
        source = _source(asked, chosen, [*files, *networks], engine)
        source.check_place(to or RUNS)
        found = check_run(source)
        with listening() as order:
            folder = make_folder(to, source.run.name, datetime.now())
            copies = [folder / "job" / "app_server" / "custom" / file.name for file in networks]
            kept = describe(source, engine, tuple(map(str, [*(file.absolute() for file in files), *copies])))
            ending = follow(folder, source, found, kept, own.at_once, order)
    return sum_up(folder, source, kept, ending)


def _source(asked: Asked, data: ChosenData, brings: list[Path], engine: EngineName) -> JobSource:
    """Return the source of the run's job, for a run that brings these files of the user's own."""
    source = find_source(asked, data.environment(), {name: os.environ[name] for name in ignored_settings(os.environ)})
    if isinstance(source, FolderJob):
        if brings:
            raise SettingsError("--plugin, and a custom network, are for a method by name: a job has its custom/.")
    else:
        warn_of_unused()
    if brings and engine is EngineName.POC:
        raise SettingsError(f"--engine poc takes no code from a job, and this one would bring {brings[0].name}.")
    if tracking := os.environ.get("FDG_TRACKING"):
        source.environment |= tracked(tracking, source.environment)
    return source


def run_reference(
    algorithm: str, plan_for: Callable[..., Plan], data: ChosenData, to: Path | None, plugins: Iterable[Path]
) -> int:
    """Train a reference on the pooled source domains, in one process without FLARE; return the exit code."""
    warn_of_unused()
    environment = data.environment()
    asked = plan_for()  # reject invalid settings before a stand-in is drawn
    pooled, target = asked.protocol.dataset, asked.protocol.target
    places = [named_path(name, environment) for name in ("FDG_DATA_ROOT", "FDG_CACHE")]
    plan = plan_for(stand_in=find_data_root(pooled, *places).stand_in)
    name = f"{algorithm}-{pooled}-{dataset_spec(pooled).site_of(target)}-seed{asked.protocol.seed}"
    folder = make_folder(to, re.sub(r"[^\w.-]", "_", name), datetime.now())
    file = folder / RESULTS_FILE
    try:
        record = _trained(plan, environment, folder)
    except Stopped:
        say(f"stopped; {f'the record is {file}' if file.exists() else 'nothing was trained yet'}", on_stderr=True)
        return INTERRUPTED
    except FDGError as error:
        if not file.exists():  # a mistake of the request
            raise
        say(f"the run failed: {str(error).rstrip('.')}; the record is {file}", "red", on_stderr=True)
        return FAILED
    say(f"{final_table(record)}\nrecord and models: {folder}")
    say(f"next: fdg report {words_for(folder, plugins)}, with the folders of the federated runs beside which it stands")
    return 0


def _trained(plan: Plan, environment: Mapping[str, str], to: Path) -> RunRecord:
    """Execute the plan on the device in the environment, and return its record; Ctrl-C stops it within a step."""
    config = read_site_config("centralised", None, environment)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    cache = named_path("FDG_CACHE", environment)
    with listening() as order, RunDisplay(plan, Console(highlight=False)) as watcher:
        return run_centralised(plan, config, cache, to, watcher, lambda: order.signal is not None)
