# SPDX-License-Identifier: Apache-2.0
"""``fdg sweep``: held-out domains x seeds x methods x settings on this machine; it can be stopped and resumed."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from typer import Argument, Option

from fdg_plugins.cli import options
from fdg_plugins.cli.console import FAILED, INTERRUPTED, say
from fdg_plugins.errors import counted
from fdg_plugins.lab.sweep.execute import REASON_FILE, Runner, Store, printing
from fdg_plugins.lab.sweep.machine import find_machine
from fdg_plugins.lab.sweep.plan import as_json, read_settings
from fdg_plugins.lab.sweep.prepare import Prepared, overview, prepare
from fdg_plugins.lab.sweep.run import LOG_FILE, Ending, held, listening
from fdg_plugins.plugins.fields import check_value

# Of --set, what is no setting of a run.
OF_THE_CALL = {"at_once": options.AT_ONCE, "parallel": options.AT_ONCE, "keep_models": bool | None}


def sweep(
    folder: Annotated[Path, Argument(help="The sweep's folder: a new one, or one to continue.")],
    methods: Annotated[str | None, Option(help="Methods and references: fedavg,fedomg+ga+dim,irm.")] = None,
    dataset: options.DatasetOption = None,
    targets: Annotated[str | None, Option(help="Domains to hold out in turn.", show_default="all")] = None,
    seeds: Annotated[str | None, Option(help="Seeds, such as 0,1,2.", show_default="0")] = None,
    settings: options.SettingsOption = None,
    sites: options.SitesOption = None,
    protocol: Annotated[options.ProtocolName | None, options.ProtocolOption.__metadata__[0]] = None,
    data_root: options.DataRootOption = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the plan; write nothing.")] = False,
    plugin: options.PluginFiles = None,
) -> int:
    """Run every method on every held-out domain, seed and setting.

    Finished runs are kept. You can stop it at any time: the same command, or fdg sweep FOLDER with the same data
    root, continues with the missing runs. Lists may grow: name more methods, domains, seeds or values. A failed run is
    named, keeps its log, and does not stop the others. Each run has a folder in FOLDER/runs, and is one process.

    --set NAME=1,2,3 makes several values an axis of the grid; METHOD:NAME=VALUE is for one method. A setting applies to
    the methods that have it. --set parallel=N sets how many runs go at a time, --set keep_models=true keeps the models
    of each run.

    Exit codes: 0 all runs have finished, 1 some failed, 2 the request cannot be carried out, 130 it was stopped.

    Examples:

      fdg sweep sweeps/pacs --methods fedavg,fedomg --seeds 0,1 --data-root /data --protocol quick --dry-run
      fdg sweep sweeps/pacs --methods fedavg,fedomg,erm,irm --set irm:strength=10,100 --data-root /data
      fdg sweep sweeps/kappa --methods fedavg,fedomg --targets sketch --set kappa=0.1,0.3,0.5 --set rounds=20
      fdg sweep sweeps/own --methods fedavg,clipped_fedavg --plugin custom/clipped_fedavg.py --dataset photos
    """
    store, given = Store(folder), plugin or []
    options.load_plugins(store.plugin_files(given))
    chosen = options.choose_data(dataset, data_root)
    environment = chosen.environment()
    values = read_settings(settings or [])
    values |= {} if sites is None else {"sites": (sites,)}
    own = {name: values.pop(name, (None,)) for name in OF_THE_CALL}
    for name, found in own.items():
        check_value(name, found[0] if len(found) == 1 else found, OF_THE_CALL[name])
    at_once, parallel, keep_models = (found[0] for found in own.values())
    asked: dict[str, Any] = {"dataset": chosen.dataset, "protocol": protocol, "settings": values}
    lists = {"methods": methods, "targets": targets, "seeds": seeds}
    asked |= {name: tuple(map(str.strip, text.split(","))) for name, text in lists.items() if text is not None}
    with options.brought_networks(values) as networks:
        files = store.plugin_files([*given, *networks])
        options.warn_of_unused()
        prepared = prepare(asked, store, environment)
        machine = find_machine(parallel, at_once, environment)
        for line in overview(prepared, store):
            say(line)
        runs = [run for run in prepared.plan if store.state(run.name) != "finished"]
        if dry_run:
            say(f"to do: {counted(len(runs), 'run')}, {len(machine.gpus)} at a time")
            return 0
        tell = printing(prepared.plan, store, Console(highlight=False))
        with held(store.lock, f"folder {store.folder}"), listening() as order:
            store.write(prepared.content, files)
            runner = Runner(store, machine, prepared.content.data.stand_in, environment, tell, bool(keep_models))
            ended = runner.carry_out(runs, order)
    failed = _sum_up(prepared, store, ended)
    if order.signal is not None:
        places = {"--dataset": environment.get("FDG_DATASET_FILE"), "--data-root": environment.get("FDG_DATA_ROOT")}
        words = [text for name, value in places.items() if value for text in (name, value)]
        call = zip(OF_THE_CALL, (at_once, parallel, keep_models), strict=True)
        words += [text for name, value in call if value for text in ("--set", f"{name}={as_json(value)}")]
        again = shlex.join(["fdg", "sweep", str(folder), *words])
        say(f"stopped; to go on: {again}")
        return INTERRUPTED
    if len(failed) < len(prepared.plan):
        say(f"next: fdg report {options.words_for(store.folder, store.plugin_files([]))}")
    return FAILED if failed else 0


def _sum_up(prepared: Prepared, store: Store, ended: Mapping[str, Ending]) -> list[str]:
    states = {run.name: store.state(run.name) for run in prepared.plan}
    failed = [name for name, state in states.items() if state == "failed"]
    finished, now = list(states.values()).count("finished"), [one.status for one in ended.values()].count("finished")
    say(f"{finished} of {len(states)} runs have finished, {now} of them now; {len(failed)} failed")
    for name in failed:
        reason = (store.runs / name / REASON_FILE).read_text(encoding="utf-8").strip()
        say(f"  {name}: {reason}; its log: {store.runs / name / LOG_FILE}", style="red")
    return failed
