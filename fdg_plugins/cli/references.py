# SPDX-License-Identifier: Apache-2.0
"""``fdg run``: one reference run on the pooled source data, for the block below the federated methods."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from fdg_plugins.cli.console import FAILED, INTERRUPTED, say, warn
from fdg_plugins.cli.options import ChosenData, plugin_words
from fdg_plugins.errors import FDGError, Stopped
from fdg_plugins.record.run_files import RESULTS_FILE

if TYPE_CHECKING:
    from fdg_plugins.lab.centralised.plan import Plan
    from fdg_plugins.record.run_record import RunRecord


def run_reference(
    algorithm: str,
    data: ChosenData,
    target: str | None,
    seed: int | None,
    values: Mapping[str, Any],
    protocol: str,
    to: Path | None,
    plugins: Sequence[Path],
) -> None:
    """Train a reference on the pooled source domains, in one process without FLARE, as ``fdg run`` is asked to."""
    from fdg_plugins.data import dataset_spec, find_data_root
    from fdg_plugins.lab.centralised.plan import make_plan
    from fdg_plugins.lab.sweep.folder import make_folder
    from fdg_plugins.lab.sweep.machine import ignored_settings, machine_environment
    from fdg_plugins.record.text import final_table
    from fdg_plugins.storage import named_path

    for name in ignored_settings(os.environ):
        warn(f"{name} is not used: the settings of a run come from --set.")
    environment = machine_environment(os.environ, data.root) | data.variables
    pooled = "pacs" if data.dataset is None else data.dataset
    spec = dataset_spec(pooled)
    held_out = spec.domains[0] if target is None else target
    plan_for = partial(make_plan, algorithm, pooled, held_out, seed or 0, dict(values), protocol=protocol)
    plan_for()  # reject invalid settings before a stand-in is drawn
    found = find_data_root(pooled, named_path("FDG_DATA_ROOT", environment), named_path("FDG_CACHE", environment))
    name = f"{algorithm}-{pooled}-{spec.site_of(held_out)}-seed{seed or 0}"
    folder = make_folder(to, re.sub(r"[^\w.-]", "_", name), datetime.now())
    record = _carry_out(plan_for(stand_in=found.stand_in), environment, folder)
    say(final_table(record))
    say(f"record and models: {folder}")
    given = shlex.join([str(folder), *plugin_words(plugins)])
    say(f"next: fdg report {given}, with the folders of the federated runs that it is to stand beside")


def _carry_out(plan: "Plan", environment: Mapping[str, str], folder: Path) -> "RunRecord":
    """Execute the run; one that fails after it has begun is no mistake of the request, and has a record."""
    file = folder / RESULTS_FILE
    try:
        return _execute(plan, environment, folder)
    except Stopped as stopped:
        say(f"stopped; {f'the record is {file}' if file.exists() else 'nothing was trained yet'}", on_stderr=True)
        raise typer.Exit(INTERRUPTED) from stopped
    except FDGError as error:
        if not file.exists():
            raise
        say(f"the run failed: {str(error).rstrip('.')}; the record is {file}", "red", on_stderr=True)
        raise typer.Exit(FAILED) from error


def _execute(plan: "Plan", environment: Mapping[str, str], to: Path) -> "RunRecord":
    """Execute the plan on the device in the environment; Ctrl-C and SIGTERM stop it within a step."""
    import torch

    from fdg_plugins.lab.centralised.run import RunDisplay, run_centralised
    from fdg_plugins.lab.sweep.execute import listening
    from fdg_plugins.settings.site_config import read_site_config
    from fdg_plugins.storage import named_path

    config = read_site_config("centralised", None, environment)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    cache = named_path("FDG_CACHE", environment)
    with listening() as order, RunDisplay(plan, Console(highlight=False)) as watcher:
        return run_centralised(plan, config, cache, to, watcher, lambda: order.signal is not None)
