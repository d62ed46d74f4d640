# SPDX-License-Identifier: Apache-2.0
"""Where the job of a run comes from: the recipe of a method by name, or an existing job folder."""

import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from fdg_plugins.aggregators import flat_names, make_aggregator
from fdg_plugins.data import dataset_spec
from fdg_plugins.data.skew import EQUAL
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.engine.workflow import arguments_of, find_workflow, sites_of
from fdg_plugins.lab.sweep.folder import JOB
from fdg_plugins.lab.sweep.kinds import FEDERATED, Written, kind_of, protocol_of
from fdg_plugins.lab.sweep.plan import PlannedRun, run_name
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.lab.sweep.values import as_json
from fdg_plugins.plugins.composition import parse_method, title_of
from fdg_plugins.plugins.files import load_files
from fdg_plugins.plugins.own_dataset import DatasetRef, OwnDataset
from fdg_plugins.recipes import FDGRecipe
from fdg_plugins.recipes.job import add_note
from fdg_plugins.record.method_settings import federated_name
from fdg_plugins.record.run_record import Method
from fdg_plugins.settings.defaults import drawn_sites, protocol_settings, source_sites
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX, Protocol, environment_settings
from fdg_plugins.settings.protocols import PAPER
from fdg_plugins.settings.uses import uses_of
from fdg_plugins.storage import check_outside

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


class JobSource:
    """The source of the job of one run: the recipe of a method, to which ``FDG_*`` settings do not apply.

    ``title`` names it in messages; ``run`` describes the run; ``environment`` is that of its processes.
    """

    title: str
    run: PlannedRun
    environment: dict[str, str]

    def __init__(self, asked: Asked, environment: Mapping[str, str]) -> None:
        if kind_of(asked.what) is not FEDERATED:
            raise SettingsError(
                field="method", value=asked.what, expected="a federated method; fdg run runs a reference"
            )
        method = parse_method(asked.what).name
        # An empty text is a wrong value, not one that is left out.
        dataset = "pacs" if asked.dataset is None else asked.dataset
        protocol = PAPER if asked.protocol is None else asked.protocol
        target = dataset_spec(dataset).domains[0] if asked.target is None else asked.target
        settings = {**settings_of_protocol(protocol, dataset, method), **asked.settings}
        if asked.participation is not None:
            settings["sites_per_round"] = drawn_sites(asked.participation, source_sites(dataset, settings))
        self.title = title_of(method)
        self.environment = dict(environment)
        self.run = _planned(method, dataset, protocol, target, asked.seed or 0, settings)

    def check_place(self, folder: Path) -> None:
        """Raise ``SettingsError`` if the job cannot be written to ``folder``, which need not exist."""

    def write_job(self, data: DataFound, folder: Path) -> Written:
        """Write the job of a run on ``data`` to ``folder/job``; return its protocol and its number of sites.

        Raises ``SettingsError`` for a setting that does not exist or has an invalid value.
        """
        return FEDERATED.write_job(self.run, data, folder)


class FolderJob(JobSource):
    """A job folder; what is to differ from it is set by ``FDG_*`` variables, as for the bare command."""

    def __init__(self, asked: Asked, environment: Mapping[str, str], shell: Mapping[str, str]) -> None:
        self._folder = Path(asked.what)
        self._sites = sites_of(self._folder)
        if not self._sites or isinstance(asked.dataset, OwnDataset):
            expected = "a job whose deploy_map names its sites, for its own data set"
            raise SettingsError(field="job", value=str(self._folder), expected=expected)
        self.environment = {**environment, **shell}
        config, _, workflow = find_workflow(self._folder)
        self._arguments = arguments_of(workflow)
        if (rule := self._arguments.get("aggregator")) is None:
            raise SettingsError(
                f"job {self._folder} has an aggregator that is a component of its own (aggregator_id), expected one by "
                f"name; nvflare simulator {self._folder} runs it."
            )
        protocols = (self._arguments.get("protocol"), self._arguments.get("stand_in_protocol"))
        load_files(uses_of(rule, protocols, self.environment).files, config.parents[1] / "custom")
        self._aggregator = make_aggregator(rule)
        settings = self._settings(asked)
        self.environment |= as_variables(settings)
        if asked.participation is not None:
            settings["sites_per_round"] = drawn_sites(asked.participation, len(self._source_shares()))
            self.environment |= as_variables(settings)
        protocol, job = self._protocol(), self._folder.resolve().name
        self.title = f"job {job}"
        where = (protocol.dataset, asked.protocol or PAPER, protocol.target, protocol.seed)
        self.run = _planned(job, *where, settings)

    def check_place(self, folder: Path) -> None:
        """Raise ``SettingsError`` for a folder in the job itself, which is copied."""
        check_outside(self._folder, folder, "the folder for the run (--to)")

    def write_job(self, data: DataFound, folder: Path) -> Written:
        """Copy the job, with what it brings in ``custom/``; an app without such a folder gets one with a note."""
        described = self.described(data)
        try:
            shutil.copytree(self._folder, folder / JOB, ignore=shutil.ignore_patterns("__pycache__"))
            for config in (folder / JOB).glob("*/config"):
                add_note(config.with_name("custom"))
        except (OSError, shutil.Error) as error:
            raise DataError(f"job {self._folder} cannot be copied to {folder / JOB}: {error}.") from error
        return described

    def described(self, data: DataFound) -> Written:
        """Return the protocol of the job on ``data``, and its number of sites."""
        return Written(self._protocol(stand_in=data.stand_in), len(self._sites))

    def _settings(self, asked: Asked) -> dict[str, Any]:
        """Return all settings that are given for the job, with those of the named protocol for the job's method."""
        own = {"dataset": asked.dataset, "target": asked.target, "seed": asked.seed}
        given = {name: value for name, value in own.items() if value is not None}
        protocol, rule = self._protocol(), self._aggregator
        named, dataset = asked.protocol or PAPER, asked.dataset or protocol.dataset
        method = Method(aggregator=type(rule).__name__, settings=rule.settings(), objective=protocol.objective)
        try:
            base = FEDERATED.base_settings(named, dataset, parse_method(federated_name(method)).name)
        except SettingsError:  # of classes of its own, of which nothing is declared
            base = protocol_settings(named, dataset)
        changed = {**environment_settings(self.environment), **asked.settings}
        known = {*Protocol.model_fields, *flat_names(rule.settings(), changed)} - {PER_DOMAIN}  # the job has its sites
        return {**_known(base, known), **given, **asked.settings}

    def check_shares(self) -> None:
        """Raise ``SettingsError`` for settings that divide a domain otherwise than the names of the job's sites."""
        protocol, counts = self._protocol(), sorted({count for _, count in self._source_shares()})
        if protocol.partition != EQUAL and counts == [1]:
            expected = f"{EQUAL!r}: each site of job {self._folder} has a domain to itself"
            raise SettingsError(field="partition", value=protocol.partition, expected=expected)
        if as_variable(PER_DOMAIN) in self.environment and protocol.sites_per_domain not in counts:
            expected = f"{' or '.join(map(str, counts))}, as the sites of job {self._folder} are called"
            raise SettingsError(field=PER_DOMAIN, value=protocol.sites_per_domain, expected=expected)

    def _source_shares(self) -> list[tuple[str, int]]:
        """Return the domain of each source site, by the sites' names, and the number of sites that share it."""
        protocol = self._protocol()
        found = map(dataset_spec(protocol.dataset).share_of, self._sites)
        return [(domain, 1 if part is None else part[1]) for domain, part in found if domain != protocol.target]

    def _protocol(self, *, stand_in: bool = False) -> Protocol:
        return protocol_of(self._arguments, self._aggregator, self.environment, stand_in)


def find_source(asked: Asked, environment: Mapping[str, str], shell: Mapping[str, str]) -> JobSource:
    """Return the source of the job that is asked for.

    ``environment`` is that of all runs on this machine; ``shell`` has the user's ``FDG_*`` settings, which apply to a
    job folder. Raises ``SettingsError`` or ``DataError`` for what names neither a method nor a job, and for settings
    that the job in a folder does not take.
    """
    check_names(asked.settings)
    if not FEDERATED.knows(asked.what) and ("/" in asked.what or Path(asked.what).is_dir()):
        job = FolderJob(asked, environment, shell)
        job.check_shares()
        return job
    return JobSource(asked, environment)


def settings_of_protocol(protocol: str, dataset: DatasetRef, method: str) -> dict[str, Any]:
    """Return the settings of a named protocol that are known to ``method``, before any that are given."""
    return _known(FEDERATED.base_settings(protocol, dataset, method), FEDERATED.settings_of(method))


def _known(settings: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in known}


def as_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as ``FDG_*`` variables; raise ``SettingsError`` for an empty text, which counts as unset."""
    texts = {name: value if isinstance(value, str) else as_json(value) for name, value in settings.items()}
    for name, text in texts.items():
        if not text.strip():
            raise SettingsError(field=name, value=text, expected="a value")
    return {as_variable(name): "none" if settings[name] is None else text for name, text in texts.items()}


def as_variable(name: str) -> str:
    """Return the ``FDG_*`` variable of a setting."""
    return f"{PREFIX}{name.upper()}"


def check_names(settings: Mapping[str, Any]) -> None:
    """Raise ``SettingsError`` for a setting that has an option of its own, or belongs to a machine or to a recipe."""
    for name in settings:
        if name in OWN_OPTIONS:
            raise SettingsError(f"--set names {name!r}, which a run takes from {OWN_OPTIONS[name]}.")
        if as_variable(name) in OTHER_VARIABLES:
            raise SettingsError(f"--set names {name!r}, expected in the environment as {as_variable(name)}.")
        if name in RECIPES_OWN:
            raise SettingsError(f"--set names {name!r}, which is not a setting of a protocol or method.")


def _planned(
    what: str, dataset: DatasetRef, protocol: str, target: str, seed: int, settings: Mapping[str, Any]
) -> PlannedRun:
    """Return a run with a name that is safe for a file."""
    name = _UNSAFE.sub("_", run_name(f"{what}-{dataset}", dataset_spec(dataset).site_of(target), seed, {}))
    return PlannedRun(name, dataset, protocol, what, target, seed, settings)
