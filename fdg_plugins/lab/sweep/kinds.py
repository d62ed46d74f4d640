# SPDX-License-Identifier: Apache-2.0
"""The kinds of runs of a sweep, and of a single run: FLARE's simulations, and references without FLARE.

A kind knows methods and settings, the description of a run in a folder ``job``, and the command that executes it.
"""

import json
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fdg_plugins.errors import SettingsError, did_you_mean, shorten
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.lab.centralised.plan import make_plan, setting_names
from fdg_plugins.lab.sweep.folder import JOB, WORKSPACE, check_signs
from fdg_plugins.lab.sweep.machine import Machine, run_environment
from fdg_plugins.lab.sweep.plan import PlannedRun, as_json
from fdg_plugins.lab.sweep.processes import Launch
from fdg_plugins.plugins.composition import BASE, find_method, parse_method
from fdg_plugins.plugins.files import files_behind
from fdg_plugins.plugins.methods import METHODS, REFERENCES
from fdg_plugins.plugins.own_dataset import DatasetRef, plain_dataset
from fdg_plugins.recipes import make_recipe
from fdg_plugins.recipes import settings_of as recipe_settings
from fdg_plugins.record.run_files import SIMULATOR_FOLDER
from fdg_plugins.settings.defaults import protocol_settings
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import write_json

SIMULATORS_MOST = 100  # sites, unless the command says more
SIMULATOR = (str(Path(sys.executable).with_name("nvflare")), "simulator")
FDG = (str(Path(sys.executable).with_name("fdg")),)
# A module that is higher in the order of imports; it is run, not imported.
ONE_PROCESS = (sys.executable, "-P", "-m", "fdg_plugins.lab.engine.one_process")


class Job(NamedTuple):
    """The job of a run: its protocol, its number of sites (1: a reference), and what writes it to ``<folder>/job``."""

    protocol: Protocol
    sites: int
    write: Callable[[Path], object]


class FederatedRuns:
    """Simulations of a federation with one site per domain, for the methods and compositions that have recipes.

    ``title`` names in messages what executes it. ``results``, relative to a run's folder, receives record and models;
    ``reasons`` are patterns that find in its log why it ended, the best first. ``job_file``, relative to the job,
    determines the run completely. ``processes`` is the number of processes in which its sites compute unless the user
    asks for another, None for one per site. ``split_at``: signs that a path must not have; None for any path.
    """

    title = "FLARE's simulator"
    results = Path(WORKSPACE, SIMULATOR_FOLDER)
    # The reason that our workflow logs when it stops; else the last error in the log.
    reasons: tuple[re.Pattern[str], ...] = (
        re.compile(r" - ERROR - stopped: (.+)"),
        re.compile(r" - ERROR - (.+)"),
    )
    job_file = Path("app_server", "config", "config_fed_server.json")
    processes: int | None = None
    split_at: str | None = "\"'\\#"

    def job(self, run: PlannedRun, *, stand_in: bool) -> Job:
        """Return the job of a planned run; raise ``SettingsError`` for a setting that it refuses."""
        recipe = make_recipe(run.method, run.dataset, name=JOB, target=run.target, seed=run.seed, **run.settings)
        plan = recipe.plans.stand_in if stand_in else recipe.plans.real
        return Job(plan.protocol, len(recipe.sites), lambda folder: recipe.export(str(folder)))

    def words(self, run: PlannedRun, at_once: int, sites: int) -> Sequence[str]:
        """Return the command that executes ``run`` in its folder, ``at_once`` of its ``sites`` at a time."""
        many = ("-m", str(sites)) if sites > SIMULATORS_MOST else ()
        return (*SIMULATOR, JOB, "-w", WORKSPACE, "-t", str(at_once), *many)

    def check_path(self, folder: Path) -> None:
        """Raise ``SettingsError`` for a path that FLARE would split."""
        if self.split_at is not None:
            check_signs(folder.absolute(), self.split_at)


class OneProcessRuns(FederatedRuns):
    """The same jobs, bit-identical, in one process, in which one site computes at a time; with workers, several."""

    title = "one process"
    processes = 1
    split_at = None

    def words(self, run: PlannedRun, at_once: int, sites: int) -> Sequence[str]:
        return (*ONE_PROCESS, JOB, WORKSPACE, *([str(at_once)] if at_once > 1 else []))


class ReferenceRuns:
    """Algorithms on pooled data, and sites alone: an ``fdg run`` each, in one process that uses all cores."""

    title = "fdg run"
    results = Path(WORKSPACE)
    # A user error in one sentence; else the last line of a traceback.
    reasons = (re.compile(r"^Error: (.+)$", re.MULTILINE), re.compile(r"^((?:\w+\.)*\w+Error\b.*)$", re.MULTILINE))
    job_file = Path("plan.json")
    processes = 1

    def job(self, run: PlannedRun, *, stand_in: bool) -> Job:
        """Return the description of a run, with all of its settings; raise ``SettingsError`` as the others do."""
        where = (run.method, run.dataset, run.target, run.seed, run.settings)
        plan = make_plan(*where, protocol=run.protocol, stand_in=stand_in)
        values = {**plan.protocol.model_dump(mode="json"), **plan.settings()}
        content = {"algorithm": run.method, "dataset": plain_dataset(run.dataset), "target": run.target}
        content |= {"seed": run.seed, "settings": {name: values[name] for name in setting_names(run.method)}}
        return Job(plan.protocol, 1, lambda folder: write_json(folder / JOB / self.job_file, content))

    def words(self, run: PlannedRun, at_once: int, sites: int) -> Sequence[str]:
        """Return ``fdg run`` with the run's settings; the environment sets its number of threads."""
        dataset = run.dataset if isinstance(run.dataset, str) else json.dumps(plain_dataset(run.dataset))
        own = {"dataset": dataset, "target": run.target, "protocol": run.protocol}
        given = [(f"--{name}", str(value)) for name, value in own.items()] + [("--set", f"seed={run.seed}")]
        named = {"model": run.settings.get("model"), "dataset": run.dataset}
        uses = [(name, value) for name, value in named.items() if isinstance(value, str)]
        given += [("--plugin", str(file.resolve())) for file in files_behind(uses).values()]
        given += [("--set", f"{name}={as_json(value)}") for name, value in run.settings.items()]
        return (*FDG, "run", run.method, *(text for pair in given for text in pair), "--to", WORKSPACE)


RunKind = FederatedRuns | ReferenceRuns
FEDERATED, REFERENCE, IN_ONE_PROCESS = FederatedRuns(), ReferenceRuns(), OneProcessRuns()


def is_federated(method: str) -> bool:
    """Return whether the first part of a name is a published method, in any spelling, and no reference's name."""
    first = method.split("+")[0]
    return first not in REFERENCES and find_method(first) is not None


def is_reference(method: str) -> bool:
    """Return whether the first part of a name is a reference, which runs without a federation."""
    return method.split("+")[0] in ALGORITHMS


def kind_of(method: str) -> RunKind:
    """Return the kind of a sweep's run of ``method``; raise ``SettingsError``, with a near match, if it is unknown."""
    if is_federated(method):
        return IN_ONE_PROCESS
    if is_reference(method):
        return REFERENCE
    hint = did_you_mean(method.split("+")[0], [*METHODS.names(), *ALGORITHMS])
    raise SettingsError(f"method {shorten(method)} is neither a federated method nor a reference; {hint}")


def canonical_name(method: str) -> str:
    """Return the published name, or that of the composition; references cannot be composed."""
    if kind_of(method) is REFERENCE and method not in ALGORITHMS:
        raise SettingsError(field="method", value=method, expected="a reference without parts")
    return method if is_reference(method) else parse_method(method).name


def settings_of(method: str) -> Collection[str]:
    """Return the names of the settings of a method's recipe, or of a reference in ``fdg run``."""
    return setting_names(method) if is_reference(method) else recipe_settings(method)


def base_settings(protocol: str, dataset: DatasetRef, method: str) -> Mapping[str, Any]:
    """Return a named protocol as settings of a run of ``method``, all of them: a recipe knows only its own.

    A reference on pooled data receives the protocol's name, whose values differ from those of federated runs.
    """
    if is_reference(method):
        return {} if ALGORITHMS[method].pools else protocol_settings(protocol, dataset, parse_method(BASE))
    return protocol_settings(protocol, dataset, parse_method(method))


def launch(
    kind: RunKind,
    run: PlannedRun,
    folder: Path,
    sites: int,
    machine: Machine,
    environment: Mapping[str, str],
    gpu: str | None = None,
) -> Launch:
    """Return how to execute a run of ``sites`` sites, whose threads together do not exceed the cores."""
    at_once = min(sites, machine.at_once or kind.processes or sites)
    threads = max(1, machine.cores // (len(machine.gpus) * at_once))
    own = run_environment(environment, folder, threads, gpu)
    return Launch(kind.title, kind.words(run, at_once, sites), kind.results, kind.reasons, own, at_once)
