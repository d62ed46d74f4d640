# SPDX-License-Identifier: Apache-2.0
"""``fdg sweep``: held-out domains x seeds x methods x settings on this machine; it can be stopped and resumed."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.cli.plugins import PluginFiles, load_plugins
from fdg_plugins.cli.sweep_options import (
    DataRootOption,
    DatasetOption,
    DryRunOption,
    GpusOption,
    KeepModelsOption,
    MethodsOption,
    ParallelOption,
    ProtocolName,
    ProtocolOption,
    RetryFailedOption,
    SeedsOption,
    SettingsOption,
    TargetsOption,
    ThreadsPerRunOption,
    ToOption,
    VerboseOption,
)
from fdg_plugins.errors import SettingsError

if TYPE_CHECKING:
    from fdg_plugins.sweep.execute import Outcome
    from fdg_plugins.sweep.machine import Machine
    from fdg_plugins.sweep.prepare import Asked, Prepared
    from fdg_plugins.sweep.store import Store

FAILED = 1
INTERRUPTED = 130


def sweep(
    to: ToOption,
    methods: MethodsOption = None,
    dataset: DatasetOption = None,
    targets: TargetsOption = None,
    seeds: SeedsOption = None,
    settings: SettingsOption = None,
    protocol: ProtocolOption = None,
    data_root: DataRootOption = None,
    parallel: ParallelOption = None,
    threads_per_run: ThreadsPerRunOption = None,
    gpus: GpusOption = None,
    retry_failed: RetryFailedOption = True,
    keep_models: KeepModelsOption = False,
    dry_run: DryRunOption = False,
    verbose: VerboseOption = False,
    plugin: PluginFiles = None,
) -> None:
    """Run every method on every held-out domain with every seed and setting, and keep finished runs.

    You can stop it at any time: the same command, or fdg sweep --to FOLDER alone, continues with the missing runs.
    Lists may grow: name more methods, domains, seeds or values. A failed run is named, kept in FOLDER/failed with its
    log, and does not stop the others. Finished runs are in FOLDER/runs.

    Federated methods run on FLARE's simulator, references (erm, irm, groupdro, vrex, iga, fish, fishr) as fdg
    centralised runs them, without FLARE. A setting applies to the methods that have it.

    Exit codes: 0 all runs have finished, 1 some failed, 2 the request cannot be executed, 130 it was stopped.

    Examples:

      fdg sweep --to sweeps/pacs --methods fedavg,fedomg --seeds 0,1 --data-root /data --protocol quick --dry-run

      fdg sweep --to sweeps/pacs --methods fedavg,fedomg,erm,irm --set irm:strength=10,100 --data-root /data

      fdg sweep --to sweeps/kappa --methods fedavg,fedomg --targets sketch --set kappa=0.1,0.3,0.5 --set rounds=20

      fdg sweep --to sweeps/pacs --data-root /data

      fdg sweep --to sweeps/own --methods fedavg,clipped_fedavg --plugin custom/clipped_fedavg.py
    """
    from fdg_plugins.sweep.estimate import estimate, make_forecast
    from fdg_plugins.sweep.execute import pending
    from fdg_plugins.sweep.machine import find_machine, ignored_settings, machine_environment
    from fdg_plugins.sweep.prepare import prepare
    from fdg_plugins.sweep.store import Store, check_folder

    check_folder(to)
    store = Store(to)
    files = store.plugin_files(plugin or [])
    load_plugins(files)
    asked = _asked(dataset, methods, targets, seeds, settings, protocol)
    environment = machine_environment(os.environ, data_root)
    for name in ignored_settings(os.environ):
        say(f"Warning: {name} is not used: the settings of a sweep come from --set.", "yellow", on_stderr=True)
    prepared = prepare(asked, store, environment)
    machine = find_machine(prepared.processes, parallel, gpus, threads_per_run, environment)
    runs = pending(prepared.plan, store, retry_failed)
    _show_plan(prepared, store, verbose=verbose)
    if dry_run:
        say(estimate(make_forecast(prepared.plan, store), runs, machine.parallel))
        return
    store.keep_plugins(files)
    outcome = _carry_out(prepared, store, machine, environment, retry_failed=retry_failed, keep_models=keep_models)
    raise typer.Exit(_sum_up(prepared, store, outcome, to))


def _asked(
    dataset: str | None,
    methods: str | None,
    targets: str | None,
    seeds: str | None,
    settings: list[str] | None,
    protocol: ProtocolName | None,
) -> "Asked":
    from fdg_plugins.sweep.prepare import Asked
    from fdg_plugins.sweep.values import read_settings

    return Asked(
        dataset=dataset,
        protocol=protocol.value if protocol else None,
        methods=_names("--methods", methods),
        targets=_names("--targets", targets),
        seeds=_seeds(seeds),
        settings=read_settings(settings or []),
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
    if names is not None and not all(name.isdecimal() for name in names):
        raise SettingsError(f"--seeds is {text!r}, expected numbers with commas between them, such as 0,1,2.")
    return None if names is None else tuple(int(name) for name in names)


def _show_plan(prepared: "Prepared", store: "Store", *, verbose: bool) -> None:
    from rich.console import Console

    from fdg_plugins.sweep.overview import headline, notes, plan_table, states_of

    states = states_of(prepared, store)
    say(headline(prepared))
    for warning in prepared.warnings:
        say(f"Warning: {warning}.", "yellow", on_stderr=True)
    Console(highlight=False).print(plan_table(prepared, states))
    for note in notes(prepared):
        say(note)
    for name, state in states.items() if verbose else ():
        say(f"  {name}: {state}")


def _carry_out(
    prepared: "Prepared",
    store: "Store",
    machine: "Machine",
    environment: dict[str, str],
    *,
    retry_failed: bool,
    keep_models: bool,
) -> "Outcome":
    """Execute the pending runs, holding the folder's lock; writes ``sweep.json`` first, so the sweep can be resumed."""
    from rich.console import Console

    from fdg_plugins.sweep.estimate import make_forecast
    from fdg_plugins.sweep.execute import Runner, listening, pending
    from fdg_plugins.sweep.kinds import launcher
    from fdg_plugins.sweep.progress import SweepDisplay

    with store.locked(), listening() as order:
        runs = pending(prepared.plan, store, retry_failed)
        done = sum(store.is_finished(run.name) for run in prepared.plan)
        forecast = make_forecast(prepared.plan, store)
        store.write(prepared.content)
        start = launcher(machine, prepared.content.data, environment)
        with SweepDisplay(len(prepared.plan), done, machine.parallel, forecast, Console(highlight=False)) as display:
            return Runner(store, start, machine.gpus, display, keep_models).carry_out(runs, order)


def _sum_up(prepared: "Prepared", store: "Store", outcome: "Outcome", to: Path) -> int:
    """Report the state of the sweep, and how to continue; return the exit code."""
    finished = [run.name for run in prepared.plan if store.is_finished(run.name)]
    failed = {run.name: reason for run in prepared.plan if (reason := store.failure(run.name)) is not None}
    say(
        f"{len(finished)} of {len(prepared.plan)} runs have finished, {len(outcome.finished)} of them now; "
        f"{len(failed)} failed"
    )
    _show_failed(failed, store)
    if finished:
        say(f"runs: {store.runs}")
    _show_next(outcome, to, has_finished_runs=bool(finished))
    return _exit_code(outcome, has_failures=bool(failed))


def _show_next(outcome: "Outcome", to: Path, *, has_finished_runs: bool) -> None:
    if outcome.stopped:
        say(f"stopped; to go on: fdg sweep --to {to}")
    elif has_finished_runs:
        say(f"next: fdg report {to}")


def _exit_code(outcome: "Outcome", *, has_failures: bool) -> int:
    if outcome.stopped:
        return INTERRUPTED
    return FAILED if has_failures else 0


def _show_failed(failed: dict[str, str], store: "Store") -> None:
    for name, reason in failed.items():
        say(f"  {name}: {reason}", style="red")
    if failed:
        say(f"their logs: {store.failed}")
