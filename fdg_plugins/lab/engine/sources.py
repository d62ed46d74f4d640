# SPDX-License-Identifier: Apache-2.0
"""Where the job of a run comes from: the recipe of a method by name, or an existing job folder."""

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from fdg_plugins.aggregators import UpdateAggregator, flat_names, make_aggregator
from fdg_plugins.data import dataset_spec
from fdg_plugins.data.skew import EQUAL
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.engine.workflow import arguments_of, check_clients, find_workflow, sites_of
from fdg_plugins.lab.sweep.jobs import FederatedRuns, protocol_of
from fdg_plugins.lab.sweep.plan import PlannedRun, run_name
from fdg_plugins.lab.sweep.references import ReferenceRuns
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.lab.sweep.run_kind import Written
from fdg_plugins.lab.sweep.store import JOB
from fdg_plugins.lab.sweep.values import as_json
from fdg_plugins.plans.uses import uses_of
from fdg_plugins.plugins.composition import parse_method, title_of
from fdg_plugins.plugins.files import load_files
from fdg_plugins.plugins.own_dataset import DatasetRef, OwnDataset
from fdg_plugins.recipes import FDGRecipe
from fdg_plugins.recipes.job import add_note
from fdg_plugins.record.names import federated_name
from fdg_plugins.record.run_record import Method
from fdg_plugins.settings.named_protocols import PAPER, protocol_settings
from fdg_plugins.settings.participation import drawn_sites, source_sites
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX, Protocol, environment_settings
from fdg_plugins.storage import check_outside

DATASET = "pacs"
SEED = 0
PER_DOMAIN = "sites_per_domain"
# Settings of every job that the command sets by its own options.
OWN_OPTIONS = {"dataset": "--dataset", "target": "--target", "seed": "--seed", "plugins": "--plugin"}
# What a recipe takes beside settings, such as the name of its job.
RECIPES_OWN = frozenset(signature(FDGRecipe).parameters) - {"settings"}
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")


@dataclass(frozen=True)
class Asked:
    """The request of one call: a method or a job folder, and what is to differ from it; None: nothing.

    ``participation`` is the share of the source sites that are drawn for a round, in (0, 1].
    """

    what: str
    dataset: DatasetRef | None = None
    target: str | None = None
    seed: int | None = None
    protocol: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    participation: float | None = None


class JobSource(ABC):
    """A source of the job of one run.

    ``title`` names it in messages; ``run`` describes the run; ``environment`` is that of its processes.
    """

    title: str
    run: PlannedRun
    environment: dict[str, str]

    def check_place(self, folder: Path) -> None:  # noqa: B027 - most jobs can be written anywhere
        """Raise ``SettingsError`` if the job cannot be written to ``folder``, which need not exist."""

    @abstractmethod
    def write_job(self, data: DataFound, working: Path) -> Written:
        """Write the job of a run on ``data`` to ``working/job``; return its protocol and its number of sites.

        Raises ``SettingsError`` for a setting that does not exist or has an invalid value.
        """


def find_source(asked: Asked, environment: Mapping[str, str], shell: Mapping[str, str]) -> JobSource:
    """Return the source of the job that is asked for.

    ``environment`` is that of all runs on this machine; ``shell`` has the user's ``FDG_*`` settings, which apply to a
    job folder. Raises ``SettingsError`` or ``DataError`` for what names neither a method nor a job, and for settings
    that the job in a folder does not take.
    """
    check_names(asked.settings)
    if not FederatedRuns().knows(asked.what) and ("/" in asked.what or Path(asked.what).is_dir()):
        job = FolderJob(asked, environment, shell)
        job.check_shares()
        return job
    return RecipeJob(asked, environment)


class RecipeJob(JobSource):
    """The job that the recipe of a method makes; the user's ``FDG_*`` settings do not apply to it."""

    def __init__(self, asked: Asked, environment: Mapping[str, str]) -> None:
        method = _method(asked.what)
        # An empty text is a wrong value, not one that is left out.
        dataset = DATASET if asked.dataset is None else asked.dataset
        protocol = PAPER if asked.protocol is None else asked.protocol
        target = dataset_spec(dataset).domains[0] if asked.target is None else asked.target
        seed = SEED if asked.seed is None else asked.seed
        settings = {**settings_of_protocol(protocol, dataset, method), **asked.settings}
        if asked.participation is not None:
            settings["sites_per_round"] = drawn_sites(asked.participation, source_sites(dataset, settings))
        self.title = title_of(method)
        self.environment = dict(environment)
        name = _name(method, dataset, target, seed)
        self.run = PlannedRun(name, dataset, protocol, method, target, seed, settings)

    def write_job(self, data: DataFound, working: Path) -> Written:
        """Write the job as the recipe exports it."""
        return FederatedRuns().write_job(self.run, data, working)


class FolderJob(JobSource):
    """A job folder; what is to differ from it is set by ``FDG_*`` variables, as for the bare command."""

    def __init__(self, asked: Asked, environment: Mapping[str, str], shell: Mapping[str, str]) -> None:
        self._folder = Path(asked.what)
        self._sites = _sites(self._folder)
        check_clients(self._folder)
        if isinstance(asked.dataset, OwnDataset):
            raise SettingsError(
                f"job {self._folder} is for the sites of its own data set, expected a method by name with own data."
            )
        self.environment = {**environment, **shell}
        self._arguments, self._aggregator = _arguments_and_aggregator(self._folder, self.environment)
        settings = self._settings(asked)
        self.environment |= as_variables(settings)
        if asked.participation is not None:
            settings["sites_per_round"] = drawn_sites(asked.participation, len(self._source_shares()))
            self.environment |= as_variables(settings)
        protocol = self._protocol(stand_in=False)
        job, (dataset, target, seed) = self._folder.resolve().name, (protocol.dataset, protocol.target, protocol.seed)
        self.title = f"job {job}"
        name = _name(job, dataset, target, seed)
        named = PAPER if asked.protocol is None else asked.protocol
        self.run = PlannedRun(name, dataset, named, job, target, seed, settings)

    def check_place(self, folder: Path) -> None:
        """Raise ``SettingsError`` for a folder in the job itself, which is copied."""
        check_outside(self._folder, folder, "the folder for the run (--to)")

    def write_job(self, data: DataFound, working: Path) -> Written:
        """Copy the job, with what it brings in ``custom/``; an app without such a folder gets one with a note."""
        described = self.described(data)
        try:
            shutil.copytree(self._folder, working / JOB, ignore=shutil.ignore_patterns("__pycache__"))
            for config in (working / JOB).glob("*/config"):
                add_note(config.with_name("custom"))
        except (OSError, shutil.Error) as error:
            raise DataError(f"job {self._folder} cannot be copied to {working / JOB}: {error}.") from error
        return described

    def described(self, data: DataFound) -> Written:
        """Return the protocol of the job on ``data``, and its number of sites."""
        return Written(self._protocol(stand_in=data.stand_in), processes=len(self._sites))

    def _settings(self, asked: Asked) -> dict[str, Any]:
        """Return all settings that are given for the job, those of a named protocol that it has included."""
        own = {"dataset": asked.dataset, "target": asked.target, "seed": asked.seed}
        given = {name: value for name, value in own.items() if value is not None}
        changed = {**environment_settings(self.environment), **asked.settings}
        known = {*Protocol.model_fields, *flat_names(self._aggregator.settings(), changed)}
        of_protocol = _known(self._of_named_protocol(asked), known)
        of_protocol.pop(PER_DOMAIN, None)  # the job has its sites
        return {**of_protocol, **given, **asked.settings}

    def _of_named_protocol(self, asked: Asked) -> Mapping[str, Any]:
        """Return the settings of the protocol that is asked for, as a run of the job's method by name has them."""
        protocol = self._protocol(stand_in=False)
        named = PAPER if asked.protocol is None else asked.protocol
        dataset = protocol.dataset if asked.dataset is None else asked.dataset
        rule = self._aggregator
        method = Method(aggregator=type(rule).__name__, settings=rule.settings(), objective=protocol.objective)
        try:
            name = parse_method(federated_name(method)).name
        except SettingsError:  # of classes of its own, of which nothing is declared
            return protocol_settings(named, dataset)
        return FederatedRuns().base_settings(named, dataset, name)

    def check_shares(self) -> None:
        """Raise ``SettingsError`` for settings that divide a domain otherwise than the names of the job's sites."""
        protocol, shares = self._protocol(stand_in=False), self._source_shares()
        counts = sorted({count for _, count in shares})
        if protocol.partition != EQUAL and counts == [1]:
            raise SettingsError(
                f"partition is {protocol.partition!r}, expected {EQUAL!r}: each site of job {self._folder} has a "
                "domain to itself."
            )
        if as_variable(PER_DOMAIN) in self.environment and protocol.sites_per_domain not in counts:
            raise SettingsError(
                f"{PER_DOMAIN} is {protocol.sites_per_domain}, expected {' or '.join(map(str, counts))}, as the sites "
                f"of job {self._folder} are called; a method by name makes the sites that it asks for."
            )

    def _source_shares(self) -> list[tuple[str, int]]:
        """Return the domain of each source site, by the sites' names, and the number of sites that share it."""
        protocol = self._protocol(stand_in=False)
        found = map(dataset_spec(protocol.dataset).share_of, self._sites)
        return [(domain, 1 if part is None else part[1]) for domain, part in found if domain != protocol.target]

    def _protocol(self, *, stand_in: bool) -> Protocol:
        return protocol_of(self._arguments, self._aggregator, self.environment, stand_in)


def settings_of_protocol(protocol: str, dataset: DatasetRef, method: str) -> dict[str, Any]:
    """Return the settings of a named protocol that are known to ``method``, before any that are given."""
    runs = FederatedRuns()
    return _known(runs.base_settings(protocol, dataset, method), runs.settings_of(method))


def _known(settings: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the settings of a named protocol that are ``known`` to a method."""
    return {name: value for name, value in settings.items() if name in known}


def as_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as ``FDG_*`` variables; raise ``SettingsError`` for an empty text, which counts as unset."""
    for name, value in settings.items():
        if isinstance(value, str) and not value.strip():
            raise SettingsError(f"{name} is {value!r}, expected a value.")
    return {as_variable(name): _as_text(value) for name, value in settings.items()}


def as_variable(name: str) -> str:
    """Return the ``FDG_*`` variable of a setting."""
    return f"{PREFIX}{name.upper()}"


def _as_text(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else as_json(value)


def check_names(settings: Mapping[str, Any]) -> None:
    """Raise ``SettingsError`` for a setting that has an option of its own, or belongs to a machine or to a recipe."""
    for name in settings:
        if name in OWN_OPTIONS:
            raise SettingsError(f"--set names {name!r}, which a run takes from {OWN_OPTIONS[name]}.")
        variable = as_variable(name)
        if variable in OTHER_VARIABLES:
            raise SettingsError(
                f"--set names {name!r}, a setting of a machine, expected in the environment as {variable}."
            )
        if name in RECIPES_OWN:
            raise SettingsError(f"--set names {name!r}, which is not a setting of a protocol or method.")


def _method(text: str) -> str:
    """Return the canonical name of a federated method; raise ``SettingsError`` if ``text`` names none."""
    if not FederatedRuns().knows(text) and ReferenceRuns().knows(text):
        reference = text.split("+")[0]
        raise SettingsError(
            f"method is {text!r}, but {reference} is a centralised reference, which pools the data of all sites, "
            f"expected a federated method; fdg run {reference} runs it."
        )
    return parse_method(text).name


def _name(what: str, dataset: DatasetRef, target: str, seed: int) -> str:
    """Return the name of a run, safe for a file."""
    return _UNSAFE.sub("_", run_name(f"{what}-{dataset}", dataset_spec(dataset).site_of(target), seed, {}))


def _sites(job: Path) -> list[str]:
    if sites := sites_of(job):
        return sites
    raise SettingsError(f"job {job} names no sites, expected a job whose deploy_map names each of them.")


def _arguments_and_aggregator(job: Path, environment: Mapping[str, str]) -> tuple[dict[str, Any], UpdateAggregator]:
    """Return the arguments of the workflow in a job folder, and its aggregator; loads the plug-in files of the job."""
    config, _, workflow = find_workflow(job)
    arguments = arguments_of(workflow)
    rule = arguments.get("aggregator")
    if rule is None:
        raise SettingsError(
            f"job {job} has an aggregator that is a component of its own (aggregator_id), expected one by name; "
            f"nvflare simulator {job} runs it."
        )
    uses = uses_of(rule, (arguments.get("protocol"), arguments.get("stand_in_protocol")), environment)
    load_files(uses.files, config.parents[1] / "custom")
    return arguments, make_aggregator(rule)
