# SPDX-License-Identifier: Apache-2.0
"""``fdg run``: one run of a federated method, or of a job folder, on this machine."""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.cli.follow import follow, sum_up
from fdg_plugins.cli.own_data import ChosenData, DataOption, DataRootOption, DatasetOption, choose_data
from fdg_plugins.cli.plugins import ModelOption, PluginFiles, chosen_model, load_plugins
from fdg_plugins.cli.references import run_reference
from fdg_plugins.cli.run_options import (
    EngineOption,
    ProtocolOption,
    SeedOption,
    SettingsOption,
    TargetOption,
    ToOption,
    WhatArgument,
    read_values,
)
from fdg_plugins.cli.sweep_options import AtOnceOption, ProtocolName
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.engine.names import EngineName
from fdg_plugins.plugins.methods import REFERENCES
from fdg_plugins.record.run_files import RUNS
from fdg_plugins.values import is_number, shorten

if TYPE_CHECKING:
    from fdg_plugins.lab.engine.sources import Asked, JobSource


def run(
    what: WhatArgument,
    dataset: DatasetOption = None,
    target: TargetOption = None,
    model: ModelOption = None,
    data_root: DataRootOption = None,
    data: DataOption = None,
    seed: SeedOption = None,
    protocol: ProtocolOption = ProtocolName.PAPER,
    settings: SettingsOption = None,
    at_once: AtOnceOption = None,
    engine: EngineOption = EngineName.SIMULATOR,
    to: ToOption = None,
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

    A job folder runs as it is: options and --set then act through FDG_*
    variables, as for nvflare simulator, and those of your shell apply too.
    The settings of a method come from its recipe, --protocol and --set alone.

    Exit codes: 0 the run has finished, 1 it failed, 2 the request cannot be
    carried out, 130 it was stopped.

    Examples:

      fdg run fedomg

      fdg run fedomg+ga --target sketch --data-root /data --protocol quick

      fdg run fedavg --dataset rotateddigits --set rounds=5 --to runs/digits

      fdg run fedomg --data photos --target sketch --protocol quick

      fdg run jobs/pacs_fedomg --data-root /data --set rounds=20

      fdg run fedavg --model my_net:MyNet --set image_size=64

      fdg run fedomg --dataset cifar10 --protocol fedomg-fl --set participation=0.4 --engine process

      fdg run erm --target sketch --set steps=2000

      fdg run clipped_fedavg --plugin custom/clipped_fedavg.py
    """
    from fdg_plugins.flare.trackers import tracked
    from fdg_plugins.lab.engine.engines import ENGINES
    from fdg_plugins.lab.engine.kept import describe
    from fdg_plugins.lab.engine.run import check_run
    from fdg_plugins.lab.engine.sources import Asked
    from fdg_plugins.lab.sweep.execute import listening
    from fdg_plugins.lab.sweep.folder import check_new, make_folder

    files = plugin or []
    if at_once is not None and engine is EngineName.POC:
        raise SettingsError(f"--at-once is {at_once}, which has no effect with --engine poc, expected none.")
    load_plugins(files)
    reference = what in REFERENCES
    if not reference:
        ENGINES[engine].check_path(to or RUNS)
        check_new(to)
    chosen = choose_data(data, dataset, data_root)
    with chosen_model(model) as own:
        values = own.added_to(read_values(settings or []))
        if reference:
            _check_reference(what, {"--at-once": at_once, "--engine": engine.value.replace("simulator", "")})
            run_reference(what, chosen, target, seed, values, protocol.value, to, files)
            return
        participation = _share(values)
        asked = Asked(what, chosen.dataset, target, seed, protocol.value, values, participation)
        source = _source(asked, chosen, [*files, *own.files])
        source.check_place(to or RUNS)
        _check_brings_no_code(engine, [*files, *own.files])
        if tracking := os.environ.get("FDG_TRACKING"):
            source.environment |= tracked(tracking, source.environment)
        found = check_run(source)
        with listening() as order:
            folder = make_folder(to, source.run.name, datetime.now())
            plugins = [*(file.absolute() for file in files), *own.kept_in(folder)]
            kept = describe(source, engine, tuple(map(str, plugins)))
            ending = follow(folder, source, found, kept, at_once, order)
    raise typer.Exit(sum_up(folder, source, kept, ending))


def _share(values: dict[str, Any]) -> float | None:
    """Take the participation, the share of the sites that are drawn for a round, out of the settings."""
    share = values.pop("participation", None)
    if share is not None and not is_number(share):
        raise SettingsError(f"participation is {shorten(share)}, expected a share of the sites in (0, 1].")
    if share is not None and "sites_per_round" in values:
        raise SettingsError("--set names both participation and sites_per_round, expected one of them.")
    return share


def _check_reference(what: str, options: Mapping[str, object]) -> None:
    """Raise ``SettingsError`` for options that only a federated run has."""
    for option, value in options.items():
        if value not in (None, ""):
            raise SettingsError(f"{option} is {value}, which has no effect on {what}, a reference on pooled data.")


def _check_brings_no_code(engine: EngineName, files: Sequence[Path]) -> None:
    """Raise ``SettingsError`` for files of code, if the run is in a federation, which takes none from a job."""

    if files and engine is EngineName.POC:
        raise SettingsError(
            f"--engine poc runs jobs that bring no code, and this one would bring {files[0].name}, expected --engine "
            "simulator or process."
        )


def _source(asked: "Asked", data: ChosenData, plugins: Sequence[Path]) -> "JobSource":
    """Return the source of the run's job; say which variables of the user's shell are not used."""
    from fdg_plugins.lab.engine.sources import FolderJob, find_source
    from fdg_plugins.lab.sweep.machine import ignored_settings, machine_environment

    shell = {name: os.environ[name] for name in ignored_settings(os.environ)}
    source = find_source(asked, machine_environment(os.environ, data.root) | data.variables, shell)
    if not isinstance(source, FolderJob):
        for name in shell:
            say(f"Warning: {name} is not used: the settings of a run come from --set.", "yellow", on_stderr=True)
    elif plugins:
        raise SettingsError(
            "--plugin, and --model with a factory, are for a method by name, expected a job that brings its files in "
            "custom/."
        )
    return source
