# SPDX-License-Identifier: Apache-2.0
"""Centralised references: each run is an ``fdg run`` on the pooled source domains, in one process."""

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.centralised.catalogue import ALGORITHMS
from fdg_plugins.lab.centralised.plan import Plan, make_plan, setting_names
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.lab.sweep.run_kind import RunKind, Written
from fdg_plugins.lab.sweep.store import JOB, WORKSPACE
from fdg_plugins.lab.sweep.values import as_json
from fdg_plugins.plugins.files import files_behind
from fdg_plugins.plugins.own_dataset import DatasetRef, dataset_text, plain_dataset
from fdg_plugins.storage import write_json

FDG = (str(Path(sys.executable).with_name("fdg")),)


def planned(run: PlannedRun, data: DataFound) -> Plan:
    """Return the checked plan of a run; raise ``SettingsError``, naming the run, for a setting that it refuses."""
    try:
        return make_plan(
            *(run.method, run.dataset, run.target, run.seed, run.settings),
            protocol=run.protocol,
            stand_in=data.stand_in,
        )
    except SettingsError as error:
        raise SettingsError(f"run {run.name}: {error}") from error


class ReferenceRuns(RunKind):
    """ERM, IRM and the other algorithms on pooled data. A run's single process uses all cores of the run."""

    program = "fdg run"
    unset = "as fdg run has it"
    record_folder = Path(WORKSPACE)
    # A user error in one sentence; else the last line of a traceback.
    reasons = (re.compile(r"^Error: (.+)$", re.MULTILINE), re.compile(r"^((?:\w+\.)*\w+Error\b.*)$", re.MULTILINE))
    job_file = Path("plan.json")

    @property
    def names(self) -> Collection[str]:
        """The names of all centralised references."""
        return tuple(ALGORITHMS)

    def canonical_name(self, text: str) -> str:
        """Return ``text``; a reference cannot be composed."""
        name, *parts = text.split("+")
        if parts:
            raise SettingsError(f"method is {text!r}, but {name!r} is a centralised reference, which takes no parts.")
        return name

    def settings_of(self, method: str) -> Collection[str]:
        """Return the names of the settings of the algorithm in ``fdg run``."""
        return setting_names(method)

    def base_settings(self, protocol: str, dataset: DatasetRef, method: str) -> Mapping[str, Any]:
        """Return nothing: the run receives the protocol's name, whose values differ from those of federated runs."""
        return {}

    def write_job(self, run: PlannedRun, data: DataFound, working: Path) -> Written:
        """Write all settings of the run, including defaults."""
        plan = planned(run, data)
        values = {**plan.protocol.model_dump(mode="json"), **plan.settings()}
        where = {"algorithm": run.method, "dataset": plain_dataset(run.dataset), "target": run.target, "seed": run.seed}
        settings = {name: values[name] for name in setting_names(run.method)}
        write_json(working / JOB / self.job_file, {**where, "settings": settings})
        return Written(plan.protocol, processes=1)

    def command(self, run: PlannedRun, threads: int, sites: int) -> Sequence[str]:
        """Return ``fdg run`` with the run's settings; the environment sets its number of threads."""
        options = {
            "dataset": dataset_text(run.dataset),
            "target": run.target,
            "seed": run.seed,
            "protocol": run.protocol,
        }
        given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        named = {"model": run.settings.get("model"), "dataset": run.dataset}
        uses = [(name, value) for name, value in named.items() if isinstance(value, str)]
        given += [text for file in files_behind(uses).values() for text in ("--plugin", str(file.resolve()))]
        given += [text for name, value in run.settings.items() for text in ("--set", f"{name}={as_json(value)}")]
        return (*FDG, "run", run.method, *given, "--to", WORKSPACE)
