# SPDX-License-Identifier: Apache-2.0
"""``fdg centralised``: one reference run on the pooled source data, for the block below the federated methods."""

import os
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdg_plugins.cli.console import LastingConsole, say
from fdg_plugins.cli.own_data import DataOption, DataRootOption, DatasetOption, choose_data
from fdg_plugins.cli.plugins import ModelOption, PluginFiles, chosen_model, load_plugins, plugin_words
from fdg_plugins.cli.sweep import FAILED, INTERRUPTED
from fdg_plugins.errors import FDGError, SettingsError, Stopped
from fdg_plugins.lab.sweep.values import read_settings, split_key
from fdg_plugins.record.run_files import RESULTS_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fdg_plugins.lab.centralised.plan import Plan
    from fdg_plugins.plugins.own_dataset import DatasetRef
    from fdg_plugins.record.run_record import RunRecord


def centralised(
    algorithm: Annotated[
        str,
        typer.Argument(metavar="ALGORITHM", help="erm, irm, groupdro, vrex, iga, fish or fishr.", show_default=False),
    ],
    target: Annotated[str, typer.Option(help="The domain to hold out; all others are pooled.", show_default=False)],
    to: Annotated[Path, typer.Option(help="A new folder, for record and models.", show_default=False)],
    dataset: DatasetOption = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=2**31 - 1, metavar="N", help="Seed of splits, initial weights, order and augmentation."
        ),
    ] = 0,
    data_root: DataRootOption = None,
    data: DataOption = None,
    protocol: Annotated[
        str,
        typer.Option(
            metavar="[paper|quick]", help="paper: DomainBed's steps; quick: minutes on a CPU. --set overrides it."
        ),
    ] = "paper",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting. May be repeated.", show_default=False),
    ] = None,
    model: ModelOption = None,
    plugin: PluginFiles = None,
) -> None:
    """Train on the pooled source domains, in one process without FLARE, and evaluate as federated runs are.

    ERM, IRM, GroupDRO, V-REx, IGA, Fish and Fishr are references, not federated methods: each step uses a batch of
    every source domain. They show what could be reached if the data were allowed in one place. Network, images,
    splits, augmentation, selection and evaluation are those of the federated runs with the same data set, held-out
    domain, seed and protocol, so fdg report shows them in one table, in a block below the methods.

    Settings: steps, checkpoint_every, optimizer (adam, adamw, sgd), batch_size (per domain), learning_rate, momentum
    (of sgd), weight_decay, model, head, normalization, trainable, adapter_rank, pretrained, image_size,
    crop_scale, color_jitter, preset, max_samples_per_domain, precision, channels_last; and strength (irm, vrex, iga,
    fishr), warm_up (irm, vrex, fishr), ema (fishr), step_size (groupdro), meta_step (fish).
    FDG_DEVICE, FDG_WORKERS, FDG_THREADS and FDG_PRETRAINED_FILE determine where and how the machine computes.

    Exit codes: 0 the run has finished, 1 it failed, 2 it cannot be executed, 130 it was stopped; its record says so.

    Examples:

      fdg centralised erm --target sketch --data-root /data --to references/erm-sketch-seed0

      fdg centralised irm --dataset rotateddigits --target angle_0 --protocol quick --to references/irm-angle_0-seed0

      fdg centralised fishr --target photo --data-root /data --set steps=2000 --set strength=100 --to references/fishr

      fdg report sweeps/pacs references
    """
    from fdg_plugins.lab.sweep.machine import ignored_settings, machine_environment
    from fdg_plugins.record.text import final_table

    for name in ignored_settings(os.environ):
        say(f"Warning: {name} is not used: the settings of a run come from --set.", "yellow", on_stderr=True)
    load_plugins(plugin)
    chosen = choose_data(data, dataset, data_root)
    environment = machine_environment(os.environ, chosen.root) | chosen.variables
    try:
        with chosen_model(model) as own:
            values = own.added_to(read_values(settings or []))
            pooled = "pacs" if chosen.dataset is None else chosen.dataset
            plan = _plan(algorithm, pooled, target, seed, values, protocol, environment)
            record = _carry_out(plan, environment, to)
    except Stopped as stopped:
        file = to / RESULTS_FILE
        say(f"stopped; {f'the record is {file}' if file.exists() else 'nothing was trained yet'}", on_stderr=True)
        raise typer.Exit(INTERRUPTED) from stopped
    say(final_table(record))
    say(f"record and models: {to}")
    given = shlex.join([str(to), *plugin_words(plugin or ())])
    say(f"next: fdg report {given}, with the folders of the federated runs that it is to stand beside")


def _plan(
    algorithm: str,
    dataset: "DatasetRef",
    target: str,
    seed: int,
    settings: dict[str, Any],
    protocol: str,
    environment: "Mapping[str, str]",
) -> "Plan":
    """Return the plan for the data in the environment, or for the stand-in if the environment names none."""
    from fdg_plugins.data import find_data_root
    from fdg_plugins.lab.centralised.plan import make_plan
    from fdg_plugins.storage import named_path

    wanted = partial(make_plan, algorithm, dataset, target, seed, settings, protocol=protocol)
    wanted()  # reject invalid settings before a stand-in is drawn
    found = find_data_root(dataset, named_path("FDG_DATA_ROOT", environment), named_path("FDG_CACHE", environment))
    return wanted(stand_in=found.stand_in)


def _carry_out(plan: "Plan", environment: "Mapping[str, str]", to: Path) -> "RunRecord":
    """Execute the run; one that fails after it has begun is no mistake of the request, and has a record."""
    file = to / RESULTS_FILE
    had_record = file.exists()  # of another run, for which the folder is refused
    try:
        return _execute(plan, environment, to)
    except FDGError as error:
        if isinstance(error, Stopped) or had_record or not file.exists():
            raise
        say(f"the run failed: {str(error).rstrip('.')}; the record is {file}", "red", on_stderr=True)
        raise typer.Exit(FAILED) from error


def _execute(plan: "Plan", environment: "Mapping[str, str]", to: Path) -> "RunRecord":
    """Execute the plan on the device in the environment; Ctrl-C and SIGTERM stop it within a step."""
    import torch

    from fdg_plugins.lab.centralised.progress import RunDisplay
    from fdg_plugins.lab.centralised.run import run_centralised
    from fdg_plugins.lab.sweep.execute import listening
    from fdg_plugins.settings.site_config import read_site_config
    from fdg_plugins.storage import named_path

    config = read_site_config("centralised", None, environment)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    cache = named_path("FDG_CACHE", environment)
    with listening() as order, RunDisplay(plan, LastingConsole(highlight=False)) as watcher:
        return run_centralised(plan, config, cache, to, watcher, lambda: order.signal is not None)


def read_values(texts: list[str]) -> dict[str, Any]:
    """Return the value of each setting from ``NAME=VALUE``; ``SettingsError`` for another form or several values."""

    settings = {}
    for key, values in read_settings(texts).items():
        owner, name = split_key(key)
        if owner is not None or len(values) != 1:
            raise SettingsError(f"--set {key} has the form of a sweep's, expected NAME=VALUE with one value.")
        settings[name] = values[0]
    return settings
