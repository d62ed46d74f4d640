# SPDX-License-Identifier: Apache-2.0
"""Federated runs: the one place where a sweep uses the recipes, whose jobs FLARE's simulator executes."""

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fdg_plugins.aggregators import UpdateAggregator, flat_names, make_aggregator
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.lab.sweep.run_kind import RunKind, Written
from fdg_plugins.lab.sweep.store import JOB, WORKSPACE
from fdg_plugins.plans.compatibility import check_settings
from fdg_plugins.plans.plans import make_plans
from fdg_plugins.plugins.composition import find_method, parse_method
from fdg_plugins.plugins.methods import METHODS, REFERENCES
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.recipes import make_recipe, settings_of
from fdg_plugins.record.run_files import SIMULATOR_FOLDER
from fdg_plugins.settings.method_defaults import method_defaults
from fdg_plugins.settings.named_protocols import protocol_settings
from fdg_plugins.settings.paper_protocols import PAPER_PROTOCOLS, PLAIN_WEIGHTINGS
from fdg_plugins.settings.protocol import Protocol, environment_settings
from fdg_plugins.storage import read_json

SIMULATORS_MOST = 100  # sites, unless the command says more
SIMULATOR = (str(Path(sys.executable).with_name("nvflare")), "simulator")


class FederatedRuns(RunKind):
    """Simulations of a federation with one site per domain, for the methods and compositions that have recipes."""

    program = "the simulator"
    unset = "as the recipe has it"
    record_folder = Path(WORKSPACE, SIMULATOR_FOLDER)
    # The reason that our workflow logs when it stops; else the last error in the log.
    reasons = (re.compile(r" - ERROR - stopped: (.+)"), re.compile(r" - ERROR - (.+)"))
    job_file = Path("app_server", "config", "config_fed_server.json")

    @property
    def names(self) -> Collection[str]:
        """The names of all published methods, including those of plug-ins."""
        return METHODS.names()

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
        """Return all settings of the protocol, because a recipe knows only its own.

        Under a paper's protocol, a method keeps what its paper or code demands of the sites' training; our own choices
        for it give way to what the protocol names.
        """
        settings = protocol_settings(protocol, dataset)
        if protocol in PLAIN_WEIGHTINGS and parse_method(method).is_plain_mean:
            settings["weighting"] = PLAIN_WEIGHTINGS[protocol]
        own = method_defaults(parse_method(method), dataset).demanded if protocol in PAPER_PROTOCOLS else ()
        return {name: value for name, value in settings.items() if name not in own}

    def write_job(self, run: PlannedRun, data: DataFound, working: Path) -> Written:
        """Write the job as FLARE's simulator runs it."""
        try:
            recipe = make_recipe(run.method, run.dataset, name=JOB, target=run.target, seed=run.seed, **run.settings)
        except SettingsError as error:
            raise SettingsError(f"run {run.name}: {error}") from error
        try:
            recipe.export(str(working))
        except OSError as error:
            raise DataError(f"job of run {run.name} cannot be written to {working}: {error.strerror}.") from error
        protocol = _protocol(read_json(working / JOB / self.job_file), data.stand_in)
        return Written(protocol, processes=len(recipe.sites))

    def command(self, run: PlannedRun, threads: int, sites: int) -> Sequence[str]:
        """Return the command that runs FLARE's simulator on the job."""
        many = ("-m", str(sites)) if sites > SIMULATORS_MOST else ()
        return (*SIMULATOR, JOB, "-w", WORKSPACE, "-t", str(threads), *many)


def _protocol(config: Mapping[str, Any], stand_in: bool) -> Protocol:
    """Return the protocol of a job's run, computed from the server's config as the workflow does."""
    arguments = config["workflows"][0]["args"]
    return protocol_of(arguments, make_aggregator(arguments["aggregator"]), {}, stand_in)


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
