# SPDX-License-Identifier: Apache-2.0
"""``fdg sweep``: held-out domains x seeds x methods x settings on this machine; it can be stopped and resumed."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.console import Console

from fdg_plugins.cli.console import FAILED, INTERRUPTED, say
from fdg_plugins.cli.own_data import DataOption, DataRootOption, DatasetOption, choose_data
from fdg_plugins.cli.plugins import ChosenModel, ModelOption, PluginFiles, chosen_model, load_plugins, plugin_words
from fdg_plugins.cli.sweep_options import (
    AtOnceOption,
    DryRunOption,
    EngineOption,
    GpusOption,
    KeepModelsOption,
    MethodsOption,
    NoRetryOption,
    ParallelOption,
    ProtocolName,
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
from fdg_plugins.values import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fdg_plugins.lab.sweep.execute import Outcome, Start
    from fdg_plugins.lab.sweep.machine import Machine
    from fdg_plugins.lab.sweep.prepare import Asked, Prepared
    from fdg_plugins.lab.sweep.store import Store
    from fdg_plugins.plugins.own_dataset import DatasetRef

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
    named, kept in FOLDER/failed with its log, and does not stop the others. Finished runs are in FOLDER/runs.

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
    from fdg_plugins.lab.sweep.estimate import estimate, make_forecast
    from fdg_plugins.lab.sweep.execute import pending
    from fdg_plugins.lab.sweep.kinds import launcher
    from fdg_plugins.lab.sweep.machine import find_machine, ignored_settings, machine_environment
    from fdg_plugins.lab.sweep.prepare import prepare
    from fdg_plugins.lab.sweep.store import Store, check_folder

    check_folder(to)
    store = Store(to)
    load_plugins(store.plugin_files(plugin or []))
    chosen = choose_data(data, dataset, data_root)
    with chosen_model(model) as own:
        files = store.plugin_files([*(plugin or []), *own.files])
        asked = _asked(chosen.dataset, methods, targets, seeds, _values(settings, own), protocol)
        environment = machine_environment(os.environ, chosen.root) | chosen.variables
        for name in ignored_settings(os.environ):
            say(f"Warning: {name} is not used: the settings of a sweep come from --set.", "yellow", on_stderr=True)
        in_one_process = engine is SweepEngine.PROCESS
        prepared = prepare(asked, store, environment, in_one_process=in_one_process)
        processes = max(prepared.processes, at_once or 1) if in_one_process else prepared.processes
        machine = find_machine(processes, parallel, gpus, at_once, environment)
        runs = pending(prepared.plan, store, not no_retry_failed)
        _show_plan(prepared, store, verbose=verbose)
        if dry_run:
            say(estimate(make_forecast(prepared.plan, store), runs, machine.parallel))
            return
        start = launcher(machine, prepared.content.data, environment, in_one_process=in_one_process)
        options = _Options(files, not no_retry_failed, keep_models, in_one_process)
        outcome = _carry_out(prepared, store, machine, start, options)
    _sum_up(prepared, store, outcome)
    numbers = {"--parallel": parallel, "--at-once": at_once, "--gpus": gpus}
    given = [text for name, value in numbers.items() if value is not None for text in (name, str(value))]
    given += ["--engine", engine.value] * (engine is not SweepEngine.PROCESS) + ["--keep-models"] * keep_models
    _show_next(outcome, store, [*_going_on(to, environment), *given])
    raise typer.Exit(_exit_code(prepared, store, outcome))


def _going_on(to: Path, environment: "Mapping[str, str]") -> list[str]:
    """Return the command that goes on with a sweep, whose folder does not hold the place of the data."""
    places = {"--dataset": "FDG_DATASET_FILE", "--data-root": "FDG_DATA_ROOT"}
    given = [(option, environment[name]) for option, name in places.items() if environment.get(name)]
    return ["fdg", "sweep", "--to", str(to), *(text for pair in given for text in pair)]


def _values(settings: list[str] | None, model: ChosenModel) -> dict[str, Any]:
    """Return the values of each setting that --set and --model name."""

    return model.added_to(read_settings(settings or []), as_axis=True)


def _asked(
    dataset: "DatasetRef | None",
    methods: str | None,
    targets: str | None,
    seeds: str | None,
    settings: dict[str, Any],
    protocol: ProtocolName | None,
) -> "Asked":
    from fdg_plugins.lab.sweep.prepare import Asked

    return Asked(
        dataset=dataset,
        protocol=protocol.value if protocol else None,
        methods=_names("--methods", methods),
        targets=_names("--targets", targets),
        seeds=_seeds(seeds),
        settings=settings,
    )


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

    from fdg_plugins.lab.sweep.overview import headline, notes, plan_table, states_of

    states = states_of(prepared, store)
    say(headline(prepared))
    for warning in prepared.warnings:
        say(f"Warning: {warning}.", "yellow", on_stderr=True)
    Console(highlight=False).print(plan_table(prepared, states))
    for note in notes(prepared):
        say(note)
    for name, state in states.items() if verbose else ():
        say(f"  {name}: {state}")


class _Options(NamedTuple):
    """How the runs are executed and kept; ``plugins`` are the files of a user's own that they need."""

    plugins: "list[Path]"
    retry_failed: bool
    keep_models: bool
    in_one_process: bool


def _carry_out(
    prepared: "Prepared", store: "Store", machine: "Machine", start: "Start", options: _Options
) -> "Outcome":
    """Execute the pending runs, holding the folder's lock; writes ``sweep.json`` first, so the sweep can be resumed."""
    from fdg_plugins.lab.sweep.estimate import make_forecast
    from fdg_plugins.lab.sweep.execute import Runner, listening, pending
    from fdg_plugins.lab.sweep.progress import SweepDisplay
    from fdg_plugins.lab.sweep.recover import recover

    with store.locked(), listening() as order:
        store.check_unchanged(prepared.earlier)
        store.keep_plugins(options.plugins)
        keep_models = options.keep_models
        data, in_one_process = prepared.content.data, options.in_one_process
        for name in recover(prepared.plan, store, data, in_one_process=in_one_process, keep_models=keep_models):
            say(f"{name} had finished, but the sweep that started it could not keep it; it is kept now")
        runs = pending(prepared.plan, store, options.retry_failed)
        done = sum(store.is_finished(run.name) for run in prepared.plan)
        forecast = make_forecast(prepared.plan, store)
        store.write(prepared.content)
        with SweepDisplay(len(prepared.plan), done, machine.parallel, forecast, Console(highlight=False)) as display:
            return Runner(store, start, machine.gpus, display, keep_models).carry_out(runs, order)


def _show_next(outcome: "Outcome", store: "Store", going_on: "list[str]") -> None:
    """Print the command that goes on with a stopped sweep, or the one that shows it, if there is something to show."""
    if outcome.stopped:
        say(f"stopped; to go on: {shlex.join(going_on)}")
    elif any(store.runs.glob("*")):
        given = [str(store.folder), *plugin_words(store.plugin_files([]))]
        say(f"next: {shlex.join(['fdg', 'report', *given])}")


def _sum_up(prepared: "Prepared", store: "Store", outcome: "Outcome") -> None:
    """Report the state of the sweep."""
    finished = [run.name for run in prepared.plan if store.is_finished(run.name)]
    failed = {run.name: reason for run in prepared.plan if (reason := store.failure(run.name)) is not None}
    say(
        f"{len(finished)} of {len(prepared.plan)} runs have finished, {len(outcome.finished)} of them now; "
        f"{len(failed)} failed"
    )
    _show_failed(failed, store)
    if finished:
        say(f"runs: {store.runs}")


def _exit_code(prepared: "Prepared", store: "Store", outcome: "Outcome") -> int:
    if outcome.stopped:
        return INTERRUPTED
    return FAILED if any(store.failure(run.name) is not None for run in prepared.plan) else 0


def _show_failed(failed: dict[str, str], store: "Store") -> None:
    for name, reason in failed.items():
        say(f"  {name}: {reason}", style="red")
    if failed:
        say(f"their logs: {store.failed}")
