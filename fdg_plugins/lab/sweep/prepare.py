# SPDX-License-Identifier: Apache-2.0
"""From the user's request to a plan in which every run has been checked; writes only to a temporary folder."""

import math
import statistics
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache as cache_of_one_call
from pathlib import Path
from typing import Any

from fdg_plugins.data import DomainData, Partition, dataset_spec, find_data_root, open_domain
from fdg_plugins.digests import sha256_of
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.flare.metrics import statsd_address
from fdg_plugins.flare.trackers import chosen_tracker
from fdg_plugins.lab.sweep.kinds import canonical_method, executing, kind_of
from fdg_plugins.lab.sweep.plan import Grid, PlannedRun, make_grids, make_plan
from fdg_plugins.lab.sweep.references import ReferenceRuns, planned
from fdg_plugins.lab.sweep.request import DataFound, Request, SweepFile, check_continues, check_pretrained
from fdg_plugins.lab.sweep.run_kind import RunKind, Written
from fdg_plugins.lab.sweep.store import JOB, Store
from fdg_plugins.lab.sweep.values import split_key
from fdg_plugins.models import read_weights
from fdg_plugins.naming import perhaps
from fdg_plugins.objectives import check_any_network, check_brought_network
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.settings.named_protocols import PAPER
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import read_site_config
from fdg_plugins.storage import named_path
from fdg_plugins.tasks import TASKS
from fdg_plugins.training.global_model import named_weights
from fdg_plugins.versions import OF_SERVER, installed_versions

ALL = "all"


@dataclass(frozen=True)
class Asked:
    """The request of one call; a field that is None takes its value from the continued sweep, or its default."""

    dataset: DatasetRef | None = None
    protocol: str | None = None
    methods: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None
    settings: Mapping[str, tuple[Any, ...]] | None = None


@dataclass(frozen=True)
class Prepared:
    """A plan that is ready to execute, with the protocol of each run by name.

    ``processes`` is the largest number of processes of one run that compute at once. ``content`` is the new content of
    ``sweep.json``, and ``earlier`` the present one, None for a new sweep; ``warnings`` are sentences for the user.
    """

    earlier: SweepFile | None
    content: SweepFile
    plan: tuple[PlannedRun, ...]
    grids: Mapping[str, Grid]
    protocols: Mapping[str, Protocol]
    processes: int
    warnings: tuple[str, ...]


def prepare(asked: Asked, store: Store, environment: Mapping[str, str], *, in_one_process: bool = False) -> Prepared:
    """Return the plan of a sweep in the folder of ``store``, for runs in ``environment``.

    ``in_one_process``: whether each federated run is one process; otherwise each of its sites is one.

    Raises ``SettingsError`` or ``DataError`` for every foreseeable failure of a run, and for a folder whose sweep
    cannot continue with this plan.
    """
    earlier = store.read()
    request = make_request(asked, earlier.request if earlier else None)
    plan, grids = runs_of(request)
    check_machine(environment)
    data = look_at_data(request.dataset, environment, {run.target for run in plan})
    pretrained = pretrained_digest(environment)
    if earlier is not None:
        check_continues(earlier, request, data, store.folder)
        check_pretrained(earlier, pretrained, store.folder)
    plan = with_budgets(plan, request, data, environment)
    for run in plan:
        if isinstance(kind_of(run.method), ReferenceRuns):  # shown with the plan
            own = {name: run.settings[name] for name in run.settings if name not in grids[run.method].axes}
            grids[run.method] = grids[run.method]._replace(fixed=own)
    checked = check_runs(plan, store, data, in_one_process=in_one_process)
    check_weights_of([written.protocol for written in checked.values()], environment)
    check_shares([written.protocol for written in checked.values()], request.dataset, environment)
    versions = installed_versions(OF_SERVER)
    return Prepared(
        earlier=earlier,
        content=SweepFile(
            request=request, data=data, versions=earlier.versions if earlier else versions, pretrained=pretrained
        ),
        plan=plan,
        grids=grids,
        protocols={name: written.protocol for name, written in checked.items()},
        processes=max(written.processes for written in checked.values()),
        warnings=_warnings(earlier, versions),
    )


def runs_of(request: Request) -> tuple[tuple[PlannedRun, ...], dict[str, Grid]]:
    """Return the runs that a complete request asks for, and the grid of each method, without looking at data or jobs.

    Raises ``SettingsError`` for a setting that its method does not have.
    """

    def base_of(method: str) -> Mapping[str, Any]:
        return kind_of(method).base_settings(request.protocol, request.dataset, method)

    def settings_of(method: str) -> Collection[str]:
        return kind_of(method).settings_of(method)

    return make_plan(request, base_of, settings_of), make_grids(request, base_of, settings_of)


def with_budgets(
    plan: tuple[PlannedRun, ...], request: Request, data: DataFound, environment: Mapping[str, str]
) -> tuple[PlannedRun, ...]:
    """Return the plan with the sweep's budget for each reference whose number of steps is not set.

    Between two checkpoints, a reference makes as many passes over the images as FedAvg does in a round of this sweep,
    and it has a checkpoint for each round; of several values of ``rounds`` or ``local_epochs``, the largest counts.
    """
    pooled = [run for run in plan if isinstance(kind_of(run.method), ReferenceRuns) and "steps" not in run.settings]
    if not pooled:
        return plan
    both = request.model_copy(update={"methods": tuple(dict.fromkeys((*request.methods, BASE)))})
    grid = runs_of(both)[1][BASE]
    settings = {
        **grid.fixed,
        **{name: max(grid.axes[name]) for name in ("rounds", "local_epochs") if name in grid.axes},
    }
    base = PlannedRun(BASE, request.dataset, request.protocol, BASE, pooled[0].target, pooled[0].seed, settings)
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
        federated = kind_of(BASE).write_job(base, data, Path(folder)).protocol
    root, cache, file = (named_path(name, environment) for name in ("FDG_DATA_ROOT", "FDG_CACHE", "FDG_DATASET_FILE"))
    place, domains = find_data_root(request.dataset, root, cache).path, dataset_spec(request.dataset).domains

    @cache_of_one_call
    def images(most: int | None) -> float:
        opened = (
            open_domain(place, request.dataset, domain, seed=0, max_samples=most, dataset_file=file)
            for domain in domains
        )
        return statistics.fmean(len(found.train) for found in opened)

    def budget(run: PlannedRun) -> PlannedRun:
        if run not in pooled:
            return run
        own = planned(run, data).protocol
        each = math.ceil(federated.local_epochs * images(own.max_samples_per_domain) / own.batch_size)
        every = run.settings.get("checkpoint_every", each)
        steps = {"steps": each * federated.rounds, "checkpoint_every": every}
        return run._replace(settings={**run.settings, **steps})

    return tuple(budget(run) for run in plan)


def check_machine(environment: Mapping[str, str]) -> None:
    """Raise ``SettingsError`` for a variable of this machine that no run could use, or a device that is not there."""
    read_site_config("of this machine", None, environment).torch_device()
    chosen_tracker(None, environment)
    statsd_address(environment)


def check_weights_of(protocols: Iterable[Protocol], environment: Mapping[str, str]) -> None:
    """Raise ``SettingsError`` or ``DataError`` for weights, of a file or by name, that no run could begin with."""
    file, sha256 = named_weights(environment)
    for model, mode, norm in {(one.model, one.pretrained, one.normalization) for one in protocols}:
        read_weights(model, mode, file, sha256, norm)


def pretrained_digest(environment: Mapping[str, str]) -> str:
    """Return the SHA-256 of the file with pretrained weights that the runs will find; empty if none is named.

    Raises ``DataError`` if it cannot be read.
    """
    file = named_path("FDG_PRETRAINED_FILE", environment)
    if file is None:
        return ""
    try:
        return sha256_of(file)
    except OSError as error:
        raise DataError(f"file {file} (FDG_PRETRAINED_FILE) cannot be read: {error.strerror}.") from error


def look_at_data(dataset: DatasetRef, environment: Mapping[str, str], targets: Collection[str] = ()) -> DataFound:
    """Return the number of images per domain in the place where the runs will find them.

    Without a data root, this is the stand-in, which is drawn if it does not exist. Raises ``DataError`` for a data root
    that does not exist or does not contain the data set, and for a domain that has no images to train or validate on
    where another one of ``targets`` is held out.
    """
    root, cache, file = (named_path(name, environment) for name in ("FDG_DATA_ROOT", "FDG_CACHE", "FDG_DATASET_FILE"))
    found = find_data_root(dataset, root, cache)
    images: dict[str, int] = {}
    for domain in dataset_spec(dataset).domains:
        data = open_domain(found.path, dataset, domain, seed=0, dataset_file=file)
        if {*targets} - {domain}:
            _check_source(data)
        images[domain] = len({sample.file for sample in (*data.train, *data.validation, *data.test)})
    return DataFound(stand_in=found.stand_in, images=images)


def _check_source(data: DomainData) -> None:
    """Raise ``DataError`` for a domain on which no site could train, or none be judged."""
    if not data.train or not data.validation:
        raise DataError(
            f"domain {data.domain!r} of data set {data.dataset} has {len(data.train):,} training and "
            f"{len(data.validation):,} validation images, expected at least one of each unless it is held out; "
            "a class of two images or more has one for validation."
        )


def check_shares(protocols: Iterable[Protocol], dataset: DatasetRef, environment: Mapping[str, str]) -> None:
    """Raise ``SettingsError`` if a source domain has too few images for the sites that share it.

    The sites would find the same, one after the other. It follows from the numbers of images and sites, not from seeds.
    """
    root, cache, file = (named_path(name, environment) for name in ("FDG_DATA_ROOT", "FDG_CACHE", "FDG_DATASET_FILE"))
    different = {_division(protocol): protocol for protocol in protocols if protocol.sites_per_domain > 1}
    for protocol in different.values():
        place = find_data_root(dataset, root, cache).path
        for domain in dataset_spec(dataset).domains:
            if domain != protocol.target:
                open_domain(
                    place,
                    dataset,
                    domain,
                    seed=protocol.seed,
                    max_samples=protocol.max_samples_per_domain,
                    part=(1, protocol.sites_per_domain),
                    partition=Partition(protocol.partition, protocol.dirichlet_alpha, protocol.least_images),
                    preset=protocol.preset,
                    dataset_file=file,
                )


def _division(protocol: Protocol) -> tuple[str | int | None, ...]:
    """Return what decides whether a domain has enough images for its sites."""
    sites, most = protocol.sites_per_domain, protocol.max_samples_per_domain
    return (protocol.target, sites, most, protocol.partition, protocol.least_images)


def make_request(asked: Asked, earlier: Request | None) -> Request:
    """Return the complete request: from this call, else from the folder, else the default."""
    plain = {"dataset": "pacs", "protocol": PAPER, "methods": (), "targets": (ALL,), "seeds": (0,), "settings": {}}
    before: dict[str, Any] = {name: getattr(earlier, name) for name in plain} if earlier else plain
    given_here = {name: getattr(asked, name) for name in before}
    asked_for = {name: before[name] if value is None else value for name, value in given_here.items()}
    if not asked_for["methods"]:
        raise SettingsError("--methods is missing: a new sweep needs at least one, such as --methods fedavg,fedomg.")
    given: dict[str, Any] = {}
    for key, values in (asked.settings or {}).items():
        if (canonical := _canonical_key(key)) in given:
            raise SettingsError(f"--set names {canonical!r} twice, expected once, with all of its values.")
        given[canonical] = values
    return Request(
        **{
            **asked_for,
            "methods": tuple(canonical_method(method) for method in asked_for["methods"]),
            "targets": _targets(asked_for["targets"], asked_for["dataset"]),
            "settings": {**before["settings"], **given},
        }
    )


def _targets(targets: tuple[str, ...], dataset: DatasetRef) -> tuple[str, ...]:
    """Return the held-out domains; raise ``SettingsError`` for a name that the data set does not have."""
    spec = dataset_spec(dataset)
    if targets == (ALL,):
        return spec.targets
    domains = spec.domains
    for target in targets:
        if target not in domains:
            raise SettingsError(
                f"--targets names {target!r}, expected all, or domains of {dataset}: {', '.join(domains)}"
                f"{perhaps(target, domains)}"
            )
    return targets


def check_runs(
    plan: tuple[PlannedRun, ...], store: Store, data: DataFound, *, in_one_process: bool
) -> dict[str, Written]:
    """Write the job of every run, and compare it with that of the finished run of the same name.

    Returns the protocol and processes of each run; with the stand-in, those on the stand-in. Raises ``SettingsError``
    for a setting that the run rejects, a package that it lacks, and a finished run that was made differently.
    """
    kinds = {run.name: executing(run.method, in_one_process=in_one_process) for run in plan}
    return {run.name: _check_run(run, kinds[run.name], store, data) for run in plan}


def _check_run(run: PlannedRun, kind: RunKind, store: Store, data: DataFound) -> Written:
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
        written = kind.write_job(run, data, Path(folder))
        TASKS.get(written.protocol.task).check_packages()
        check_any_network(written.protocol)
        check_brought_network(written.protocol)
        if store.is_finished(run.name) and (found := kind.difference(store.runs / run.name / JOB, Path(folder, JOB))):
            raise SettingsError(
                f"run {run.name} in {store.runs} was made with other settings ({found}): expected the same, or another "
                "folder with --to."
            )
    return written


def _canonical_key(key: str) -> str:
    method, name = split_key(key)
    return name if method is None else f"{canonical_method(method)}:{name}"


def _warnings(earlier: SweepFile | None, versions: Mapping[str, str]) -> tuple[str, ...]:
    began = earlier.versions if earlier else versions
    return tuple(
        f"the sweep was begun with {name} {began[name]} and goes on with {versions[name]}, by which its runs may differ"
        for name in sorted(versions)
        if began.get(name, versions[name]) != versions[name]
    )
