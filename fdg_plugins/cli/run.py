# SPDX-License-Identifier: Apache-2.0
"""``fdg run``: one run of a federated method, of a reference on pooled data, or of a job folder, on this machine."""

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdg_plugins.cli.console import warn
from fdg_plugins.cli.follow import follow, sum_up
from fdg_plugins.cli.options import (
    ChosenData,
    DataRootOption,
    DatasetOption,
    PluginFiles,
    ProtocolName,
    ProtocolOption,
    SettingsOption,
    TargetOption,
    brought_networks,
    choose_data,
    load_plugins,
    read_values,
)
from fdg_plugins.errors import SettingsError, is_number
from fdg_plugins.lab.engine import EngineName
from fdg_plugins.record.run_files import RUNS

if TYPE_CHECKING:
    from fdg_plugins.lab.engine.sources import Asked, JobSource


def run(
    what: Annotated[
        str,
        typer.Argument(
            metavar="METHOD|JOBFOLDER",
            help="A method or composition by name (fedavg, fedomg+ga), a reference on pooled data (erm, irm), or a job "
            "folder (jobs/pacs_fedomg).",
            show_default=False,
        ),
    ],
    dataset: DatasetOption = None,
    target: TargetOption = None,
    data_root: DataRootOption = None,
    protocol: ProtocolOption = ProtocolName.PAPER,
    settings: SettingsOption = None,
    engine: Annotated[
        EngineName,
        typer.Option(
            metavar="NAME",
            help="What executes the run: simulator (FLARE's), process (one process), or poc (a provisioned "
            "federation).",
        ),
    ] = EngineName.SIMULATOR,
    to: Annotated[
        Path | None,
        typer.Option(help="A new or empty folder; default: a new one in runs/, named after the run and the time."),
    ] = None,
    plugin: PluginFiles = None,
) -> None:
    """Run a method, a reference or a job folder on this machine.

    The run leaves a folder of its own. Every domain of the data set is a site; one of them is held out and only
    evaluates. Without a data root, the run is on the STAND-IN: small images
    that are drawn here. Settings and data are checked before anything starts.

    References (erm, irm, groupdro, vrex, iga, fish, fishr) train on the pooled
    source domains in one process: what could be reached if the data were
    allowed in one place. fdg report shows them below the methods.

    The folder holds the record (results.json), models, log and job, also of a
    run that failed or was stopped, which fdg resume goes on with. Nothing is
    ever overwritten.

    --set model=NAME chooses the network; NAME may also be MODULE:FACTORY, a
    function or class of your own. --set seed=N sets the seed, participation=0.4
    the share of the sites that are drawn for each round, and at_once=N how many
    sites compute at a time.

    A job folder runs as it is: options and --set then act through FDG_*
    variables, as for nvflare simulator, and those of your shell apply too.

    Exit codes: 0 the run has finished, 1 it failed, 2 the request cannot be
    carried out, 130 it was stopped.

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
    from fdg_plugins.flare.trackers import tracked
    from fdg_plugins.lab.engine.kept import describe
    from fdg_plugins.lab.engine.run import ENGINES, check_run
    from fdg_plugins.lab.engine.sources import Asked
    from fdg_plugins.lab.sweep.execute import listening
    from fdg_plugins.lab.sweep.folder import check_new, make_folder
    from fdg_plugins.plugins.methods import REFERENCES

    files = plugin or []
    load_plugins(files)
    if what not in REFERENCES:
        ENGINES[engine].check_path(to or RUNS)
    check_new(to)
    chosen = choose_data(dataset, data_root)
    values = read_values(settings or [])
    seed = _number(values, "seed", least=0)
    with brought_networks(values) as networks:
        if what in REFERENCES:
            from fdg_plugins.cli.references import run_reference

            if engine is not EngineName.SIMULATOR:
                raise SettingsError(f"--engine is {engine.value}, but {what} is a reference, in one process anyway.")
            run_reference(what, chosen, target, seed, values, protocol.value, to, files)
            return
        at_once, participation = _number(values, "at_once", least=1), _share(values)
        asked = Asked(what, chosen.dataset, target, seed, protocol.value, values, participation)
        source = _source(asked, chosen, brings=[*files, *networks], engine=engine)
        source.check_place(to or RUNS)
        if tracking := os.environ.get("FDG_TRACKING"):
            source.environment |= tracked(tracking, source.environment)
        found = check_run(source)
        with listening() as order:
            folder = make_folder(to, source.run.name, datetime.now())
            copies = [folder / "job" / "app_server" / "custom" / file.name for file in networks]
            kept = describe(source, engine, tuple(map(str, [*(file.absolute() for file in files), *copies])))
            ending = follow(folder, source, found, kept, at_once, order)
    raise typer.Exit(sum_up(folder, source, kept, ending))


def _number(values: dict[str, Any], name: str, least: int) -> int | None:
    """Take a whole number out of the settings."""
    number = values.pop(name, None)
    if number is not None and not (is_number(number) and int(number) == number >= least):
        raise SettingsError(field=name, value=number, expected=f"a whole number from {least}")
    return number


def _share(values: dict[str, Any]) -> float | None:
    """Take the participation, the share of the sites that are drawn for a round, out of the settings."""
    share = values.pop("participation", None)
    if share is not None and (not is_number(share) or "sites_per_round" in values):
        raise SettingsError(field="participation", value=share, expected="a share of the sites, or sites_per_round")
    return share


def _source(asked: "Asked", data: ChosenData, brings: list[Path], engine: EngineName) -> "JobSource":
    """Return the source of the run's job; say which variables of the user's shell are not used."""
    from fdg_plugins.lab.engine.sources import FolderJob, find_source
    from fdg_plugins.lab.sweep.machine import ignored_settings, machine_environment

    shell = {name: os.environ[name] for name in ignored_settings(os.environ)}
    source = find_source(asked, machine_environment(os.environ, data.root) | data.variables, shell)
    if brings and isinstance(source, FolderJob):
        raise SettingsError("--plugin, and a network of your own, are for a method by name: a job has its custom/.")
    if brings and engine is EngineName.POC:
        raise SettingsError(f"--engine poc takes no code from a job, and this one would bring {brings[0].name}.")
    for name in () if isinstance(source, FolderJob) else shell:
        warn(f"{name} is not used: the settings of a run come from --set.")
    return source
