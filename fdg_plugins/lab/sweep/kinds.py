# SPDX-License-Identifier: Apache-2.0
"""The kinds of runs of a sweep, and of a single run: FLARE's simulations, and references without FLARE.

A kind knows the methods that it runs, their settings, the description of a run in a folder ``job``, the command that
executes it, and the location of its record. All else is the same for all kinds.
"""

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fdg_plugins.aggregators import UpdateAggregator, flat_names, make_aggregator
from fdg_plugins.errors import DataError, SettingsError, did_you_mean, shorten
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.lab.centralised.plan import Plan, make_plan, setting_names
from fdg_plugins.lab.sweep.folder import JOB, WORKSPACE, check_path
from fdg_plugins.lab.sweep.machine import Machine, run_environment
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.processes import Command
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.lab.sweep.values import as_json
from fdg_plugins.plans.plans import check_settings, make_plans
from fdg_plugins.plugins.composition import find_method, parse_method
from fdg_plugins.plugins.files import files_behind
from fdg_plugins.plugins.methods import METHODS, REFERENCES
from fdg_plugins.plugins.own_dataset import DatasetRef, dataset_text, plain_dataset
from fdg_plugins.recipes import make_recipe, settings_of
from fdg_plugins.record.run_files import SIMULATOR_FOLDER
from fdg_plugins.settings.defaults import protocol_settings
from fdg_plugins.settings.protocol import Protocol, environment_settings
from fdg_plugins.storage import read_json, write_json

SIMULATORS_MOST = 100  # sites, unless the command says more
SIMULATOR = (str(Path(sys.executable).with_name("nvflare")), "simulator")
FDG = (str(Path(sys.executable).with_name("fdg")),)
# A module that is higher in the order of imports; it is run, not imported.
ONE_PROCESS = (sys.executable, "-P", "-m", "fdg_plugins.lab.engine.one_process")


class Written(NamedTuple):
    """The facts known about a run once its job is written: its protocol, and its number of sites (1: a reference)."""

    protocol: Protocol
    sites: int


class Launch(NamedTuple):
    """How a run is executed: ``at_once`` of its sites compute at the same time."""

    at_once: int
    command: Command


class FederatedRuns:
    """Simulations of a federation with one site per domain, for the methods and compositions that have recipes.

    ``title`` names in messages what executes it, ``unset`` says whose values apply by default. ``results``, relative to
    a run's folder, receives record and models; ``reasons`` are patterns that find in its log why it ended, the best
    first. ``job_file``, relative to the job, determines the run completely. ``processes`` is the number of processes in
    which its sites compute unless the user asks for another, None for one per site.
    """

    title = "FLARE's simulator"
    unset = "as the recipe has it"
    results = Path(WORKSPACE, SIMULATOR_FOLDER)
    # The reason that our workflow logs when it stops; else the last error in the log.
    reasons: tuple[re.Pattern[str], ...] = (
        re.compile(r" - ERROR - stopped: (.+)"),
        re.compile(r" - ERROR - (.+)"),
    )
    job_file = Path("app_server", "config", "config_fed_server.json")
    processes: int | None = None

    def knows(self, method: str) -> bool:
        """Return whether a method, or the first part of a composition, is published, in any spelling.

        The name of a reference is not the spelling of a plug-in's method without its "fed".
        """
        first = method.split("+")[0]
        return first not in REFERENCES and find_method(first) is not None

    def canonical_name(self, text: str) -> str:
        """Return the published name, or that of the composition."""
        return parse_method(text).name

    def settings_of(self, method: str) -> Collection[str]:
        """Return the names of the settings of the method's recipe."""
        return settings_of(method)

    def base_settings(self, protocol: str, dataset: DatasetRef, method: str) -> Mapping[str, Any]:
        """Return a named protocol as settings of a run of ``method``, all of them: a recipe knows only its own."""
        return protocol_settings(protocol, dataset, parse_method(method))

    def write_job(self, run: PlannedRun, data: DataFound, folder: Path) -> Written:
        """Write the job of a planned run on ``data`` to ``folder/job``; return what is known then.

        Raises ``SettingsError``, naming the run, for a setting that does not exist or has an invalid value.
        """
        try:
            recipe = make_recipe(run.method, run.dataset, name=JOB, target=run.target, seed=run.seed, **run.settings)
            recipe.export(str(folder))
        except SettingsError as error:
            raise SettingsError(f"run {run.name}: {error}") from error
        except OSError as error:
            raise DataError(f"job of run {run.name} cannot be written to {folder}: {error.strerror}.") from error
        arguments = read_json(folder / JOB / self.job_file)["workflows"][0]["args"]
        protocol = protocol_of(arguments, make_aggregator(arguments["aggregator"]), {}, data.stand_in)
        return Written(protocol, len(recipe.sites))

    def words(self, run: PlannedRun, at_once: int, sites: int) -> Sequence[str]:
        """Return the command that executes ``run`` in its folder, ``at_once`` of its ``sites`` at a time."""
        many = ("-m", str(sites)) if sites > SIMULATORS_MOST else ()
        return (*SIMULATOR, JOB, "-w", WORKSPACE, "-t", str(at_once), *many)

    def check_path(self, folder: Path) -> None:
        """Raise ``SettingsError`` if this kind cannot run in ``folder``, which need not exist yet."""
        check_path(folder)


class OneProcessRuns(FederatedRuns):
    """The same jobs with the same bits in one process, in which one site computes at a time; with workers, several."""

    title = "one process"
    processes = 1

    def words(self, run: PlannedRun, at_once: int, sites: int) -> Sequence[str]:
        """Return the command that runs the job in one process; its sites compute in ``at_once`` workers if several."""
        return (*ONE_PROCESS, JOB, WORKSPACE, *([str(at_once)] if at_once > 1 else []))

    def check_path(self, folder: Path) -> None:
        """Accept any path."""


class ReferenceRuns:
    """ERM, IRM and the other algorithms on pooled data: an ``fdg run`` each, in one process that uses all cores."""

    title = "fdg run"
    unset = "as fdg run has it"
    results = Path(WORKSPACE)
    # A user error in one sentence; else the last line of a traceback.
    reasons = (re.compile(r"^Error: (.+)$", re.MULTILINE), re.compile(r"^((?:\w+\.)*\w+Error\b.*)$", re.MULTILINE))
    job_file = Path("plan.json")
    processes = 1

    def knows(self, method: str) -> bool:
        """Return whether the first part of a name is an algorithm on pooled data."""
        return method.split("+")[0] in ALGORITHMS

    def canonical_name(self, text: str) -> str:
        """Return ``text``; a reference cannot be composed."""
        if text not in ALGORITHMS:
            raise SettingsError(field="method", value=text, expected="a centralised reference without parts")
        return text

    def settings_of(self, method: str) -> Collection[str]:
        """Return the names of the settings of the algorithm in ``fdg run``."""
        return setting_names(method)

    def base_settings(self, protocol: str, dataset: DatasetRef, method: str) -> Mapping[str, Any]:
        """Return nothing: the run receives the protocol's name, whose values differ from those of federated runs."""
        return {}

    def planned(self, run: PlannedRun, data: DataFound) -> Plan:
        """Return the checked plan of a run; raise ``SettingsError``, naming the run, for a setting that it refuses."""
        where = (run.method, run.dataset, run.target, run.seed, run.settings)
        try:
            return make_plan(*where, protocol=run.protocol, stand_in=data.stand_in)
        except SettingsError as error:
            raise SettingsError(f"run {run.name}: {error}") from error

    def write_job(self, run: PlannedRun, data: DataFound, folder: Path) -> Written:
        """Write all settings of the run, including defaults."""
        plan = self.planned(run, data)
        values = {**plan.protocol.model_dump(mode="json"), **plan.settings()}
        where = {"algorithm": run.method, "dataset": plain_dataset(run.dataset), "target": run.target, "seed": run.seed}
        settings = {name: values[name] for name in setting_names(run.method)}
        write_json(folder / JOB / self.job_file, {**where, "settings": settings})
        return Written(plan.protocol, sites=1)

    def words(self, run: PlannedRun, at_once: int, sites: int) -> Sequence[str]:
        """Return ``fdg run`` with the run's settings; the environment sets its number of threads."""
        own = {"dataset": dataset_text(run.dataset), "target": run.target, "protocol": run.protocol}
        given = [(f"--{name}", str(value)) for name, value in own.items()] + [("--set", f"seed={run.seed}")]
        named = {"model": run.settings.get("model"), "dataset": run.dataset}
        uses = [(name, value) for name, value in named.items() if isinstance(value, str)]
        given += [("--plugin", str(file.resolve())) for file in files_behind(uses).values()]
        given += [("--set", f"{name}={as_json(value)}") for name, value in run.settings.items()]
        return (*FDG, "run", run.method, *(text for pair in given for text in pair), "--to", WORKSPACE)


RunKind = FederatedRuns | ReferenceRuns
FEDERATED, REFERENCE, IN_ONE_PROCESS = FederatedRuns(), ReferenceRuns(), OneProcessRuns()


def kind_of(method: str, *, in_one_process: bool = False) -> RunKind:
    """Return the kind of run of ``method``; raise ``SettingsError``, with a near match, if the name is unknown."""
    if FEDERATED.knows(method):
        return IN_ONE_PROCESS if in_one_process else FEDERATED
    if REFERENCE.knows(method):
        return REFERENCE
    hint = did_you_mean(method.split("+")[0], [*METHODS.names(), *ALGORITHMS])
    raise SettingsError(f"method {shorten(method)} is neither a federated method nor a centralised reference; {hint}")


def launch(
    kind: RunKind,
    run: PlannedRun,
    folder: Path,
    sites: int,
    machine: Machine,
    environment: Mapping[str, str],
    gpu: str | None = None,
) -> Launch:
    """Return how to execute a run of ``sites`` sites; ``environment`` is that of all runs on the machine."""
    computing = sites if machine.threads or kind.processes is None else kind.processes
    at_once = machine.threads_of(computing)
    own = run_environment(environment, folder, machine.arithmetic_threads(computing), gpu)
    return Launch(at_once, Command(kind.title, kind.words(run, at_once, sites), kind.results, kind.reasons, own))


def protocol_of(
    arguments: Mapping[str, Any], aggregator: UpdateAggregator, environment: Mapping[str, str], stand_in: bool
) -> Protocol:
    """Return the protocol of a run, from the workflow's arguments in its job and the ``FDG_*`` variables.

    Raises ``SettingsError`` for settings that the run would refuse, for real data or for the stand-in.
    """
    objects = (arguments.get("protocol") or {}, arguments.get("stand_in_protocol") or {})
    plans = make_plans(*objects, environment, flat_names(aggregator.settings(), environment_settings(environment)))
    check_settings(aggregator, plans)
    return (plans.stand_in if stand_in else plans.real).protocol
