# SPDX-License-Identifier: Apache-2.0
"""``fdg sweep``: held-out domains x seeds x methods x settings on this machine; it can be stopped and resumed."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fdg_plugins.cli.console import FAILED, INTERRUPTED, say, warn
from fdg_plugins.cli.options import (
    DataRootOption,
    DatasetOption,
    PluginFiles,
    ProtocolName,
    ProtocolOption,
    SettingsOption,
    brought_networks,
    choose_data,
    load_plugins,
    plugin_words,
)
from fdg_plugins.errors import SettingsError, counted
from fdg_plugins.lab.sweep.values import read_settings

if TYPE_CHECKING:
    from fdg_plugins.lab.sweep.execute import Ended, Store
    from fdg_plugins.lab.sweep.prepare import Prepared

LARGEST_SEED = 2**31 - 1


def sweep(
    folder: Annotated[
        Path, typer.Argument(help="The sweep's folder: a new one, or one to go on with.", show_default=False)
    ],
    methods: Annotated[
        str | None,
        typer.Option(help="Methods, and centralised references: fedavg,fedomg+ga+dim,irm.", show_default=False),
    ] = None,
    dataset: DatasetOption = None,
    targets: Annotated[
        str | None, typer.Option(help="Domains to hold out, one at a time, or all.", show_default="all")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, such as 0,1,2.", show_default="0")] = None,
    settings: SettingsOption = None,
    protocol: Annotated[ProtocolName | None, ProtocolOption.__metadata__[0]] = None,
    data_root: DataRootOption = None,
    parallel: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Runs at a time; default: one per GPU, else one per core."),
    ] = None,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the models of each run: they are large.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its time, if known; write nothing in the folder.")
    ] = False,
    plugin: PluginFiles = None,
) -> None:
    """Run every method on every held-out domain, seed and setting.

    Finished runs are kept. You can stop it at any time: the same command, or fdg sweep FOLDER with the same data
    root, continues with the missing runs. Lists may grow: name more methods, domains, seeds or values. A failed run is
    named, keeps its log, and does not stop the others. Each run has a folder in FOLDER/runs.

    --set NAME=1,2,3 makes several values an axis of the grid; METHOD:NAME=VALUE is for one method. A setting applies to
    the methods that have it.

    Each federated run is one process, with the bits that FLARE's simulator gives. References
    (erm, irm, groupdro, vrex, iga, fish, fishr) run as fdg run does, without FLARE.

    Exit codes: 0 all runs have finished, 1 some failed, 2 the request cannot be carried out, 130 it was stopped.

    Examples:

      fdg sweep sweeps/pacs --methods fedavg,fedomg --seeds 0,1 --data-root /data --protocol quick --dry-run

      fdg sweep sweeps/pacs --methods fedavg,fedomg,erm,irm --set irm:strength=10,100 --data-root /data

      fdg sweep sweeps/kappa --methods fedavg,fedomg --targets sketch --set kappa=0.1,0.3,0.5 --set rounds=20

      fdg sweep sweeps/pacs --data-root /data

      fdg sweep sweeps/photos --methods fedavg,fedomg,erm --dataset photos --protocol quick

      fdg sweep sweeps/own --methods fedavg,clipped_fedavg --plugin custom/clipped_fedavg.py

      fdg sweep sweeps/net --methods fedavg,fedomg --set model=my_net.py:build --set image_size=64
    """
    from fdg_plugins.lab.sweep.execute import Lines, Runner, Store, listening
    from fdg_plugins.lab.sweep.folder import held
    from fdg_plugins.lab.sweep.machine import find_machine, ignored_settings, machine_environment
    from fdg_plugins.lab.sweep.prepare import overview, prepare

    store = Store(folder)
    load_plugins(store.plugin_files(plugin or []))
    chosen = choose_data(dataset, data_root)
    values = read_settings(settings or [])
    (at_once,) = values.pop("at_once", (None,))
    with brought_networks(values) as networks:
        files = store.plugin_files([*(plugin or []), *networks])
        asked = {
            "dataset": chosen.dataset,
            "protocol": protocol.value if protocol else None,
            "methods": _names("--methods", methods),
            "targets": _names("--targets", targets),
            "seeds": _seeds(seeds),
            "settings": values,
        }
        environment = machine_environment(os.environ, chosen.root) | chosen.variables
        for name in ignored_settings(os.environ):
            warn(f"{name} is not used: the settings of a sweep come from --set.")
        prepared = prepare(asked, store, environment)
        machine = find_machine(parallel, at_once, environment)
        for line in overview(prepared, store):
            say(line)
        runs = [run for run in prepared.plan if store.state(run.name) != "finished"]
        if dry_run:
            say(f"to do: {counted(len(runs), 'run')}, {len(machine.gpus)} at a time")
            return
        lines = Lines(prepared.plan, store, Console(highlight=False))
        with held(store.lock, f"folder {store.folder}"), listening() as order:
            store.write(prepared.content, files)
            runner = Runner(store, machine, prepared.content.data.stand_in, environment, lines, keep_models)
            ended = runner.carry_out(runs, order)
    numbers = {"--parallel": parallel, "--set": None if at_once is None else f"at_once={at_once}"}
    places = {"--dataset": environment.get("FDG_DATASET_FILE"), "--data-root": environment.get("FDG_DATA_ROOT")}
    given = [text for name, value in (places | numbers).items() if value for text in (name, str(value))]
    again = shlex.join(["fdg", "sweep", str(folder), *given, *["--keep-models"] * keep_models])
    raise typer.Exit(_sum_up(prepared, store, ended, again if order.signal is not None else None))


def _names(option: str, text: str | None) -> tuple[str, ...] | None:
    names = None if text is None else tuple(name.strip() for name in text.split(","))
    if names is not None and not all(names):
        raise SettingsError(field=option, value=text, expected="names with commas between them")
    return names


def _seeds(text: str | None) -> tuple[int, ...] | None:
    names = _names("--seeds", text)
    if names is not None and not all(name.isdecimal() and len(name) <= len(str(LARGEST_SEED)) for name in names):
        raise SettingsError(field="--seeds", value=text, expected="numbers with commas between them, such as 0,1,2")
    return None if names is None else tuple(map(int, names))


def _sum_up(prepared: "Prepared", store: "Store", ended: "list[Ended]", again: str | None) -> int:
    """Report the state of the sweep, and the command that goes on with it or shows it; return the exit code."""
    from fdg_plugins.lab.sweep.processes import LOG_FILE

    states = {run.name: store.state(run.name) for run in prepared.plan}
    failed = [name for name, state in states.items() if state == "failed"]
    finished = list(states.values()).count("finished")
    now = [one.status for one in ended].count("finished")
    say(f"{finished} of {len(states)} runs have finished, {now} of them now; {len(failed)} failed")
    for name in failed:
        say(f"  {name}: {store.failure(name)}; its log: {store.runs / name / LOG_FILE}", style="red")
    if again is not None:
        say(f"stopped; to go on: {again}")
    elif finished:
        say(f"next: {shlex.join(['fdg', 'report', str(store.folder), *plugin_words(store.plugin_files([]))])}")
    return INTERRUPTED if again is not None else FAILED if failed else 0
