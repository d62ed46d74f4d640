# SPDX-License-Identifier: Apache-2.0
"""Where the job of a run comes from: a method or reference by name, a job folder, or a run's folder to be resumed."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

import pydantic

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.centralised.plan import PLAN_FILE, read_plan
from fdg_plugins.lab.engine.workflow import arguments_of, find_workflow, sites_of
from fdg_plugins.lab.sweep.jobs import Job, base_settings, canonical_name, is_known, make_job, title
from fdg_plugins.lab.sweep.machine import THREADS, EngineName
from fdg_plugins.lab.sweep.plan import DataFound, PlannedRun, as_json, run_name
from fdg_plugins.lab.sweep.prepare import OWN_OPTIONS, pretrained_digest
from fdg_plugins.lab.sweep.run import JOB, RUN_FILE
from fdg_plugins.plans import make_plans, uses_of
from fdg_plugins.plugins.files import load_files
from fdg_plugins.plugins.own_dataset import DatasetRef, OwnDataset
from fdg_plugins.recipes import FDGRecipe
from fdg_plugins.recipes.job import add_note
from fdg_plugins.settings.defaults import allotted_sites, drawn_sites
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX, Protocol
from fdg_plugins.settings.protocols import PAPER
from fdg_plugins.storage import named_path, read_json

# Variables of the machine that the user has given with the run, by --dataset and FDG_TRACKING.
GIVEN = ("FDG_DATASET_FILE", "FDG_TRACKING")

# Variables on which the bits of a run depend, or the images that it uses.
OF_MACHINE = ("FDG_DEVICE", "FDG_COMPILE", "FDG_DAMAGED_IMAGES", "FDG_MAX_IMAGE_PIXELS")
WEIGHTS, DIGEST = "FDG_PRETRAINED_FILE", "FDG_PRETRAINED_SHA256"

NUMBERS_OF_SITES = {"sites", "sites_per_domain"}
# What a recipe takes beside settings, such as the name of its job.
RECIPES_OWN = frozenset(signature(FDGRecipe).parameters) - {"settings", *NUMBERS_OF_SITES}


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


@dataclass
class JobSource:
    """The source of the job of one run, here a method or reference by name, to which ``FDG_*`` settings do not apply.

    ``title`` names it in messages; ``environment`` is that of its processes.
    """

    title: str
    run: PlannedRun
    environment: dict[str, str]

    def job(self, *, stand_in: bool) -> Job:
        """Return the job of the run; raise ``SettingsError`` for a setting that does not exist or is invalid."""
        return make_job(self.run, stand_in=stand_in)


class FolderJob(JobSource):
    """A job folder; what is to differ from it is set by ``FDG_*`` variables, as for the bare command."""

    def __init__(self, asked: Asked, environment: Mapping[str, str], shell: Mapping[str, str]) -> None:
        self._folder = Path(asked.what)
        self._sites = sites_of(self._folder)
        config, _, workflow = find_workflow(self._folder)
        self._arguments = arguments_of(workflow)
        rule = self._arguments.get("aggregator")
        whose = not isinstance(asked.dataset, OwnDataset) and asked.protocol in (None, PAPER)
        if not self._sites or rule is None or not whose or NUMBERS_OF_SITES & asked.settings.keys():
            expected = "a job with an aggregator by name, and its own sites, data set and protocol (fdg export job)"
            raise SettingsError(field="job", value=self._folder, expected=expected)
        self.environment = {**environment, **shell}
        protocols = (self._arguments.get("protocol"), self._arguments.get("stand_in_protocol"))
        load_files(uses_of(rule, protocols, self.environment).files, config.parents[1] / "custom")
        self._aggregator = make_aggregator(rule)
        own = {"dataset": asked.dataset, "target": asked.target, "seed": asked.seed}
        settings = {**{name: value for name, value in own.items() if value is not None}, **asked.settings}
        self.environment |= as_variables(settings)
        if asked.participation is not None:
            target, spec = self._protocol().target, dataset_spec(self._protocol().dataset)
            sources = [site for site in self._sites if spec.share_of(site)[0] != target]
            settings["sites_per_round"] = drawn_sites(asked.participation, len(sources))
            self.environment |= as_variables(settings)
        protocol, job = self._protocol(), self._folder.resolve().name
        self.title = f"job {job}"
        self.run = _planned(job, protocol.dataset, PAPER, protocol.target, protocol.seed, settings)

    def job(self, *, stand_in: bool) -> Job:
        """Return the job as the variables set it."""
        return Job(self._protocol(stand_in=stand_in), len(self._sites), self._copy)

    def _copy(self, folder: Path) -> None:
        """Copy the job, with what it brings in ``custom/``; an app without such a folder gets one with a note."""
        if self._folder.absolute() == folder / JOB:  # that of a run which is resumed
            return
        shutil.copytree(self._folder, folder / JOB, ignore=shutil.ignore_patterns("__pycache__"))
        for config in (folder / JOB).glob("*/config"):
            add_note(config.with_name("custom"))

    def _protocol(self, *, stand_in: bool = False) -> Protocol:
        objects = (self._arguments.get("protocol") or {}, self._arguments.get("stand_in_protocol") or {})
        plans = make_plans(*objects, self.environment, self._aggregator)
        return (plans.stand_in if stand_in else plans.real).protocol


def find_source(asked: Asked, environment: Mapping[str, str], shell: Mapping[str, str]) -> JobSource:
    """Return the source of the job that is asked for.

    ``environment`` is that of all runs on this machine; ``shell`` has the user's ``FDG_*`` settings, which apply to a
    job folder.
    """
    check_names(asked.settings)
    if not is_known(asked.what) and ("/" in asked.what or Path(asked.what).is_dir()):
        return FolderJob(asked, environment, shell)
    method = canonical_name(asked.what)
    # An empty text is a wrong value, not one that is left out.
    dataset = "pacs" if asked.dataset is None else asked.dataset
    protocol = PAPER if asked.protocol is None else asked.protocol
    target = dataset_spec(dataset).domains[0] if asked.target is None else asked.target
    settings = {**base_settings(protocol, dataset, method), **asked.settings}
    if asked.participation is not None:
        counts = allotted_sites(dataset, target, settings)
        settings["sites_per_round"] = drawn_sites(asked.participation, sum(counts.values()))
    run = _planned(method, dataset, protocol, target, asked.seed or 0, settings)
    return JobSource(title(method), run, dict(environment))


def as_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as ``FDG_*`` variables; raise ``SettingsError`` for an empty text, which counts as unset."""
    texts = {name: value if isinstance(value, str) else as_json(value) for name, value in settings.items()}
    if empty := [name for name, text in texts.items() if not text.strip()]:
        raise SettingsError(field=empty[0], value="", expected="a value")
    return {as_variable(name): "none" if settings[name] is None else text for name, text in texts.items()}


def as_variable(name: str) -> str:
    """Return the ``FDG_*`` variable of a setting."""
    return f"{PREFIX}{name.upper()}"


def check_names(settings: Mapping[str, Any]) -> None:
    """Raise ``SettingsError`` for a setting that has its own option, or belongs to a machine or to a recipe."""
    for name in settings:
        of_machine = as_variable(name) in OTHER_VARIABLES
        if of_machine or name in OWN_OPTIONS or name in RECIPES_OWN:
            other = f"the variable {as_variable(name)}" if of_machine else OWN_OPTIONS.get(name, "another name")
            raise SettingsError(field="--set", value=name, expected=f"{other}: it is no setting of protocol or method")


def _planned(
    what: str, dataset: DatasetRef, protocol: str, target: str, seed: int, settings: Mapping[str, Any]
) -> PlannedRun:
    name = run_name(f"{what}-{dataset}", dataset_spec(dataset).site_of(target), seed, {})
    parts: dict[str, Any] = {"dataset": dataset, "protocol": protocol, "method": what, "target": target, "seed": seed}
    parts |= {"name": re.sub(r"[^A-Za-z0-9_.+-]+", "_", name), "settings": dict(settings)}
    return PlannedRun.read(parts, "the run", SettingsError)


# --- the folder of a run, and what it says about it (``run.json``) ---


class KeptRun(PlannedRun):
    """The content of ``run.json``.

    ``variables`` are the ``FDG_*`` variables that set the protocol and the method, or name the file of a data set of
    the user's own; ``plugins`` are the plug-in files of the command line; ``seconds`` is the time spent so far.
    ``at_once`` sites computed at a time, each with ``threads`` threads (``FDG_THREADS``), on which the bits of its
    arithmetic depend. ``machine``: the user's other variables of that kind (:data:`OF_MACHINE`), and the file with
    pretrained weights with its SHA-256. ``stand_in``: whether the images are the STAND-IN; None: unknown.
    """

    title: str
    engine: EngineName
    variables: dict[str, str] = pydantic.Field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    seconds: float = 0.0
    at_once: int | None = None
    threads: str | None = None
    machine: dict[str, str] = pydantic.Field(default_factory=dict)
    stand_in: bool | None = None


def describe(source: JobSource, engine: EngineName, plugins: tuple[str, ...] = ()) -> KeptRun:
    """Return what ``run.json`` says of the run of a job."""
    variables = {
        name: value
        for name, value in source.environment.items()
        if name.startswith(PREFIX) and (name not in OTHER_VARIABLES or name in GIVEN)
    }
    machine = {name: source.environment[name] for name in OF_MACHINE if source.environment.get(name, "").strip()}
    if (weights := named_path(WEIGHTS, source.environment)) is not None:
        machine |= {WEIGHTS: str(weights), DIGEST: pretrained_digest(source.environment)}
    own: dict[str, Any] = {"title": source.title, "variables": variables, "plugins": plugins, "machine": machine}
    return KeptRun(**dict(source.run), engine=engine, **own)


def read_kept(folder: Path) -> KeptRun:
    """Return what ``run.json`` in the folder of a run says; raise ``DataError`` if it is not the folder of a run."""
    file = folder / RUN_FILE
    if not file.is_file():
        expected = f"that of a run, with {RUN_FILE}; fdg sweep FOLDER continues a sweep"
        raise DataError(field="folder", value=folder, expected=expected)
    return KeptRun.read(read_json(file), f"file {file} is not what fdg run writes", DataError)


def check_same_data(folder: Path, kept: KeptRun, data: DataFound) -> None:
    """Raise ``DataError`` if the run in ``folder`` was on real images and ``data`` are the STAND-IN, or the reverse."""
    if kept.stand_in not in (None, data.stand_in):
        then, now = ("the STAND-IN", "real images") if kept.stand_in else ("real images", "the STAND-IN")
        expected = "expected the same --data-root (FDG_DATA_ROOT)."
        raise DataError(f"the run in {folder} is on {then}, and this command finds {now}: {expected}")


def kept_source(folder: Path, kept: KeptRun, environment: Mapping[str, str]) -> JobSource:
    """Return the source of the job in the folder of a run; ``kept`` says what it was asked for as.

    Sites compute on the device and with as many threads as before, unless ``environment`` has others.
    """
    before = {**kept.machine, **({} if kept.threads is None else {THREADS: kept.threads})}
    if (folder / JOB / PLAN_FILE).is_file():
        read_plan(folder / JOB)  # whose plug-in files are loaded
        return JobSource(kept.title, kept, {**before, **environment, **kept.variables})
    source = FolderJob(Asked(str(folder / JOB)), {**before, **environment}, kept.variables)
    source.run, source.title = kept, kept.title
    return source
