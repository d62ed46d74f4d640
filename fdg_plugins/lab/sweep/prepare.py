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
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.flare.metrics import statsd_address
from fdg_plugins.flare.trackers import chosen_tracker
from fdg_plugins.lab.sweep.execute import Store, is_same_job
from fdg_plugins.lab.sweep.kinds import FEDERATED, REFERENCE, Written, kind_of
from fdg_plugins.lab.sweep.plan import Grid, PlannedRun, make_grids, make_plan
from fdg_plugins.lab.sweep.request import DataFound, Request, SweepFile, check_continues
from fdg_plugins.lab.sweep.values import split_key
from fdg_plugins.models import read_weights
from fdg_plugins.objectives import check_any_network, check_brought_network
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.plugins.versions import OF_SERVER, installed_versions
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.protocols import PAPER
from fdg_plugins.settings.site_config import read_site_config
from fdg_plugins.storage import named_path, sha256_of
from fdg_plugins.tasks import TASKS
from fdg_plugins.training.global_model import named_weights

ALL = "all"


@dataclass(frozen=True)
class Prepared:
    """A plan that is ready to execute.

    ``processes`` is the largest number of processes of one run that compute at once. ``content`` is the new content of
    ``sweep.json``, and ``earlier`` the present one, None for a new sweep.
    """

    earlier: SweepFile | None
    content: SweepFile
    plan: tuple[PlannedRun, ...]
    grids: Mapping[str, Grid]


def prepare(asked: Mapping[str, Any], store: Store, environment: Mapping[str, str]) -> Prepared:
    """Return the plan of a sweep in the folder of ``store``, for runs in ``environment``.

    ``asked`` has fields of the :class:`Request`; one that is missing or None takes its value from the continued sweep,
    or its default.

    Raises ``SettingsError`` or ``DataError`` for every foreseeable failure of a run, and for a folder whose sweep
    cannot continue with this plan.
    """
    earlier = store.read()
    request = make_request(asked, earlier.request if earlier else None)
    plan, grids = runs_of(request)
    check_machine(environment)
    content = SweepFile(
        request=request,
        data=look_at_data(request.dataset, environment, {run.target for run in plan}),
        versions=earlier.versions if earlier else installed_versions(OF_SERVER),
        pretrained=pretrained_digest(environment),
    )
    if earlier is not None:
        check_continues(earlier, content, store.folder)
    plan = with_budgets(plan, request, content.data, environment)
    for run in plan:
        if REFERENCE.knows(run.method):  # shown with the plan
            own = {name: run.settings[name] for name in run.settings if name not in grids[run.method].axes}
            grids[run.method] = grids[run.method]._replace(fixed=own)
    protocols = [_check_run(run, store, content.data).protocol for run in plan]
    check_weights_of(protocols, environment)
    check_shares(protocols, request.dataset, environment)
    return Prepared(earlier, content, plan, grids)


def runs_of(request: Request) -> tuple[tuple[PlannedRun, ...], dict[str, Grid]]:
    """Return the runs that a complete request asks for, and the grid of each method, without looking at data or jobs.

    Raises ``SettingsError`` for a setting that its method does not have.
    """

    def base_of(method: str) -> Mapping[str, Any]:
        return kind_of(method).base_settings(request.protocol, request.dataset, method)

    grids = make_grids(request, base_of, lambda method: kind_of(method).settings_of(method))
    return make_plan(request, grids), grids


def _check_run(run: PlannedRun, store: Store, data: DataFound) -> Written:
    """Write the job of a run, and compare it with that of the finished run of the same name.

    Raises ``SettingsError`` for a setting that the run rejects, a package that it lacks, and a finished run that was
    made differently.
    """
    kind = kind_of(run.method)
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
        written = kind.write_job(run, data, Path(folder))
        TASKS.get(written.protocol.task).check_packages()
        check_any_network(written.protocol)
        check_brought_network(written.protocol)
        if store.is_finished(run.name) and not is_same_job(kind, store.runs / run.name, Path(folder)):
            raise SettingsError(
                f"run {run.name} in {store.runs} was made with other settings than {run.settings}: expected the same, "
                "or another folder with --to."
            )
    return written


def with_budgets(
    plan: tuple[PlannedRun, ...], request: Request, data: DataFound, environment: Mapping[str, str]
) -> tuple[PlannedRun, ...]:
    """Return the plan with the sweep's budget for each reference whose number of steps is not set.

    Between two checkpoints, a reference makes as many passes over the images as FedAvg does in a round of this sweep,
    and it has a checkpoint for each round; of several values of ``rounds`` or ``local_epochs``, the largest counts.
    """
    pooled = [run for run in plan if REFERENCE.knows(run.method) and "steps" not in run.settings]
    if not pooled:
        return plan
    both = request.model_copy(update={"methods": tuple(dict.fromkeys((*request.methods, BASE)))})
    grid = runs_of(both)[1][BASE]
    largest = {name: max(grid.axes[name]) for name in ("rounds", "local_epochs") if name in grid.axes}
    base = pooled[0]._replace(name=BASE, method=BASE, settings={**grid.fixed, **largest})
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
        federated = FEDERATED.write_job(base, data, Path(folder)).protocol

    @cache_of_one_call
    def images(most: int | None) -> float:
        _, opened = _open_domains(request.dataset, environment, seed=0, max_samples=most)
        return statistics.fmean(len(found.train) for found in opened.values())

    def budget(run: PlannedRun) -> PlannedRun:
        own = REFERENCE.planned(run, data).protocol
        each = math.ceil(federated.local_epochs * images(own.max_samples_per_domain) / own.batch_size)
        steps = {"steps": each * federated.rounds, "checkpoint_every": run.settings.get("checkpoint_every", each)}
        return run._replace(settings={**run.settings, **steps})

    return tuple(budget(run) if run in pooled else run for run in plan)


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
    """Return the SHA-256 of the file with pretrained weights that the runs will find; empty if none is named."""
    file = named_path("FDG_PRETRAINED_FILE", environment)
    try:
        return "" if file is None else sha256_of(file)
    except OSError as error:
        raise DataError(f"file {file} (FDG_PRETRAINED_FILE) cannot be read: {error.strerror}.") from error


def _open_domains(
    dataset: DatasetRef, environment: Mapping[str, str], without: str | None = None, **options: Any
) -> tuple[bool, dict[str, DomainData]]:
    """Return whether a data set is the stand-in where the runs will find it, and its domains, all but ``without``."""
    root, cache, file = (named_path(name, environment) for name in ("FDG_DATA_ROOT", "FDG_CACHE", "FDG_DATASET_FILE"))
    found = find_data_root(dataset, root, cache)
    domains = [domain for domain in dataset_spec(dataset).domains if domain != without]
    opened = {domain: open_domain(found.path, dataset, domain, dataset_file=file, **options) for domain in domains}
    return found.stand_in, opened


def look_at_data(dataset: DatasetRef, environment: Mapping[str, str], targets: Collection[str] = ()) -> DataFound:
    """Return the number of images per domain in the place where the runs will find them.

    Raises ``DataError`` for a data root that does not exist or does not contain the data set, and for a domain that has
    no images to train or validate on where another one of ``targets`` is held out.
    """
    images: dict[str, int] = {}
    stand_in, domains = _open_domains(dataset, environment, seed=0)
    for domain, data in domains.items():
        if {*targets} - {domain} and not (data.train and data.validation):
            raise DataError(
                f"domain {domain!r} of data set {data.dataset} has {len(data.train):,} training and "
                f"{len(data.validation):,} validation images, expected at least one of each unless it is held out; "
                "a class of two images or more has one for validation."
            )
        images[domain] = len({sample.file for sample in (*data.train, *data.validation, *data.test)})
    return DataFound(stand_in=stand_in, images=images)


def check_shares(protocols: Iterable[Protocol], dataset: DatasetRef, environment: Mapping[str, str]) -> None:
    """Raise ``SettingsError`` if a source domain has too few images for the sites that share it.

    The sites would find the same, one after the other. It follows from the numbers of images and sites, not from seeds.
    """
    different = {
        (one.target, one.sites_per_domain, one.max_samples_per_domain, one.partition, one.least_images): one
        for one in protocols
        if one.sites_per_domain > 1
    }
    for protocol in different.values():
        _open_domains(
            dataset,
            environment,
            without=protocol.target,
            seed=protocol.seed,
            max_samples=protocol.max_samples_per_domain,
            part=(1, protocol.sites_per_domain),
            partition=Partition(protocol.partition, protocol.dirichlet_alpha, protocol.least_images),
            preset=protocol.preset,
        )


def make_request(asked: Mapping[str, Any], earlier: Request | None) -> Request:
    """Return the complete request: from this call, else from the folder, else the default."""
    plain = {"dataset": "pacs", "protocol": PAPER, "methods": (), "targets": (ALL,), "seeds": (0,), "settings": {}}
    before: dict[str, Any] = {name: getattr(earlier, name) for name in plain} if earlier else plain
    wanted = before | {name: value for name, value in asked.items() if value is not None}
    if not wanted["methods"]:
        raise SettingsError("--methods is missing: a new sweep needs at least one, such as --methods fedavg,fedomg.")
    given: dict[str, Any] = {}
    for key, values in (asked.get("settings") or {}).items():
        method, name = split_key(key)
        canonical = name if method is None else f"{kind_of(method).canonical_name(method)}:{name}"
        if canonical in given:
            raise SettingsError(f"--set names {canonical!r} twice, expected once, with all of its values.")
        given[canonical] = values
    spec = dataset_spec(wanted["dataset"])
    targets = spec.targets if wanted["targets"] == (ALL,) else wanted["targets"]
    for target in targets:
        if target not in spec.domains:
            names = f"expected all, or domains of {spec.name}: {', '.join(spec.domains)}."
            raise SettingsError(f"--targets names {target!r}, {names}")
    methods = tuple(kind_of(method).canonical_name(method) for method in wanted["methods"])
    settings = {**before["settings"], **given}
    return Request(**{**wanted, "methods": methods, "targets": targets, "settings": settings})
