# SPDX-License-Identifier: Apache-2.0
"""``fdg sweep``: held-out domains x seeds x methods x settings on this machine; it can be stopped and resumed."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from fdg_plugins.cli.console import FAILED, INTERRUPTED, say
from fdg_plugins.cli.own_data import DataOption, DataRootOption, DatasetOption, choose_data
from fdg_plugins.cli.plugins import ModelOption, PluginFiles, chosen_model, load_plugins, plugin_words
from fdg_plugins.cli.sweep_options import (
    AtOnceOption,
    DryRunOption,
    EngineOption,
    GpusOption,
    KeepModelsOption,
    MethodsOption,
    NoRetryOption,
    ParallelOption,
    ProtocolOption,
    SeedsOption,
    SettingsOption,
    SweepEngine,
    TargetsOption,
    ToOption,
    VerboseOption,
)
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.sweep.values import read_settings
from fdg_plugins.values import counted, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fdg_plugins.lab.sweep.execute import Ended, Store
    from fdg_plugins.lab.sweep.prepare import Prepared

LONGEST_SEED = 10  # digits: seeds are below 2**31


def sweep(
    to: ToOption,
    methods: MethodsOption = None,
    dataset: DatasetOption = None,
    targets: TargetsOption = None,
    seeds: SeedsOption = None,
    model: ModelOption = None,
    settings: SettingsOption = None,
    protocol: ProtocolOption = None,
    data_root: DataRootOption = None,
    data: DataOption = None,
    parallel: ParallelOption = None,
    engine: EngineOption = SweepEngine.PROCESS,
    at_once: AtOnceOption = None,
    gpus: GpusOption = None,
    no_retry_failed: NoRetryOption = False,
    keep_models: KeepModelsOption = False,
    dry_run: DryRunOption = False,
    verbose: VerboseOption = False,
    plugin: PluginFiles = None,
) -> None:
    """Run every method on every held-out domain, seed and setting.

    Finished runs are kept. You can stop it at any time: the same command, or fdg sweep --to FOLDER with the same data
    root, continues with the missing runs. Lists may grow: name more methods, domains, seeds or values. A failed run is
    named, keeps its log, and does not stop the others. Each run has a folder in FOLDER/runs.

    Each federated run is one process, with the bits that FLARE's simulator gives (--engine simulator). References
    (erm, irm, groupdro, vrex, iga, fish, fishr) run as fdg run does, without FLARE. A setting applies to
    the methods that have it.

    Exit codes: 0 all runs have finished, 1 some failed, 2 the request cannot be carried out, 130 it was stopped.

    Examples:

      fdg sweep --to sweeps/pacs --methods fedavg,fedomg --seeds 0,1 --data-root /data --protocol quick --dry-run

      fdg sweep --to sweeps/pacs --methods fedavg,fedomg,erm,irm --set irm:strength=10,100 --data-root /data

      fdg sweep --to sweeps/kappa --methods fedavg,fedomg --targets sketch --set kappa=0.1,0.3,0.5 --set rounds=20

      fdg sweep --to sweeps/pacs --data-root /data

      fdg sweep --to sweeps/photos --methods fedavg,fedomg,erm --data photos --protocol quick

      fdg sweep --to sweeps/own --methods fedavg,clipped_fedavg --plugin custom/clipped_fedavg.py

      fdg sweep --to sweeps/net --methods fedavg,fedomg --model my_net.py:build --set image_size=64
    """
    from fdg_plugins.lab.sweep.execute import Runner, Store, listening, pending
    from fdg_plugins.lab.sweep.folder import check_path, held
    from fdg_plugins.lab.sweep.machine import find_machine, ignored_settings, machine_environment
    from fdg_plugins.lab.sweep.overview import Lines
    from fdg_plugins.lab.sweep.prepare import prepare

    check_path(to)
    store = Store(to)
    load_plugins(store.plugin_files(plugin or []))
    chosen = choose_data(data, dataset, data_root)
    with chosen_model(model) as own:
        files = store.plugin_files([*(plugin or []), *own.files])
        asked = {
            "dataset": chosen.dataset,
            "protocol": protocol.value if protocol else None,
            "methods": _names("--methods", methods),
            "targets": _names("--targets", targets),
            "seeds": _seeds(seeds),
            "settings": own.added_to(read_settings(settings or []), as_axis=True),
        }
        environment = machine_environment(os.environ, chosen.root) | chosen.variables
        for name in ignored_settings(os.environ):
            say(f"Warning: {name} is not used: the settings of a sweep come from --set.", "yellow", on_stderr=True)
        in_one_process = engine is SweepEngine.PROCESS
        prepared = prepare(asked, store, environment, in_one_process=in_one_process)
        processes = max(prepared.processes, at_once or 1) if in_one_process else prepared.processes
        machine = find_machine(processes, parallel, gpus, at_once, environment)
        _show_plan(prepared, store, verbose=verbose)
        runs = pending(prepared.plan, store, not no_retry_failed)
        if dry_run:
            say(f"to do: {counted(len(runs), 'run')}, {len(machine.gpus)} at a time")
            return
        lines = Lines(prepared.plan, store, Console(highlight=False))
        found = prepared.content.data
        with held(store.lock, f"folder {store.folder}"), listening() as order:
            store.write(prepared.content, files)
            runner = Runner(store, machine, found, environment, lines, in_one_process, keep_models)
            ended = runner.carry_out(runs, order)
    numbers = {"--parallel": parallel, "--at-once": at_once, "--gpus": gpus}
    given = [text for name, value in numbers.items() if value is not None for text in (name, str(value))]
    given += ["--engine", engine.value] * (engine is not SweepEngine.PROCESS) + ["--keep-models"] * keep_models
    again = shlex.join([*_going_on(to, environment), *given]) if order.signal is not None else None
    raise typer.Exit(_sum_up(prepared, store, ended, again))


def _going_on(to: Path, environment: "Mapping[str, str]") -> list[str]:
    """Return the command that goes on with a sweep, whose folder does not hold the place of the data."""
    places = {"--dataset": "FDG_DATASET_FILE", "--data-root": "FDG_DATA_ROOT"}
    given = [(option, environment[name]) for option, name in places.items() if environment.get(name)]
    return ["fdg", "sweep", "--to", str(to), *(text for pair in given for text in pair)]


def _names(option: str, text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise SettingsError(f"{option} is {text!r}, expected names with commas between them.")
    return names


def _seeds(text: str | None) -> tuple[int, ...] | None:
    names = _names("--seeds", text)
    if names is not None and not all(name.isdecimal() and len(name) <= LONGEST_SEED for name in names):
        raise SettingsError(f"--seeds is {shorten(text)}, expected numbers with commas between them, such as 0,1,2.")
    return None if names is None else tuple(int(name) for name in names)


def _show_plan(prepared: "Prepared", store: "Store", *, verbose: bool) -> None:
    from fdg_plugins.lab.sweep.overview import headline, notes

    states = {run.name: store.state(run.name) for run in prepared.plan}
    say(headline(prepared))
    found = [*states.values()]
    say(", ".join(f"{found.count(state)} {state}" for state in ("finished", "failed", "to do")))
    for note in notes(prepared):
        say(note)
    for name, state in states.items() if verbose else ():
        say(f"  {name}: {state}")


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
