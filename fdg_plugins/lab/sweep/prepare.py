# SPDX-License-Identifier: Apache-2.0
"""From the user's request to a plan in which every run has been checked; writes only to a temporary folder."""

import itertools
import math
import statistics
from collections.abc import Collection, Iterator, Mapping
from functools import cache as cache_of_one_call
from typing import Any, NamedTuple

from fdg_plugins.data import DomainData, dataset_spec, find_data_root, open_domain
from fdg_plugins.errors import DataError, SettingsError, counted, did_you_mean
from fdg_plugins.flare.metrics import statsd_address
from fdg_plugins.flare.trackers import chosen_tracker
from fdg_plugins.lab.sweep.execute import Store
from fdg_plugins.lab.sweep.jobs import base_settings, canonical_name, is_reference, make_job, settings_of
from fdg_plugins.lab.sweep.plan import DataFound, PlannedRun, Request, SweepFile, as_json, run_name, split_key
from fdg_plugins.models.pretrained import read_weights
from fdg_plugins.objectives.network import check_brought_network, check_network
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.protocols import PAPER
from fdg_plugins.settings.site_config import read_site_config
from fdg_plugins.storage import named_path, sha256_of
from fdg_plugins.tasks import TASKS
from fdg_plugins.training.global_model import named_weights

ALL = "all"
# Settings of every job that the commands set by their own options.
OWN_OPTIONS = {"dataset": "--dataset", "target": "--target or --targets", "seed": "--seeds", "plugins": "--plugin"}

Grid = Mapping[str, tuple[Any, ...]]
"""The values of each setting of a method, by its name, in sorted order; one with several values is an axis."""


class Prepared(NamedTuple):
    """A plan that is ready to execute; ``content`` is the new content of ``sweep.json``."""

    content: SweepFile
    plan: tuple[PlannedRun, ...]
    grids: Mapping[str, Grid]


def prepare(asked: Mapping[str, Any], store: Store, environment: Mapping[str, str]) -> Prepared:
    """Return the plan of a sweep in the folder of ``store``, for runs in ``environment``.

    ``asked`` has fields of the :class:`Request`; what is missing or None comes from the continued sweep, or a default.
    Raises ``SettingsError`` or ``DataError`` for every foreseeable failure of a run, and for a folder whose sweep
    cannot continue with this plan.
    """
    earlier = store.read()
    request = make_request(asked, earlier.request if earlier else None)
    plan, grids = runs_of(request)
    check_machine(environment)
    data = look_at_data(request.dataset, environment, {run.target for run in plan})
    content = SweepFile(request=request, data=data, pretrained=pretrained_digest(environment))
    if earlier is not None:
        check_continues(earlier, content, str(store.folder))
    plan = with_budgets(plan, request, data, environment)
    for run in plan:
        if is_reference(run.method):  # shown with the plan
            grids[run.method] = {**{name: (value,) for name, value in run.settings.items()}, **grids[run.method]}
    check_protocols([make_job(run, stand_in=data.stand_in).protocol for run in plan], environment)
    return Prepared(content, plan, grids)


def make_request(asked: Mapping[str, Any], earlier: Request | None) -> Request:
    """Return the complete request: from this call, else from the folder, else the default; each entry once."""
    plain = {"dataset": "pacs", "protocol": PAPER, "methods": (), "targets": (ALL,), "seeds": (0,), "settings": {}}
    before: dict[str, Any] = dict(earlier) if earlier else plain
    wanted = before | {name: value for name, value in asked.items() if value is not None}
    settings = dict(before["settings"])
    for key, values in (asked.get("settings") or {}).items():
        method, name = split_key(key)
        settings[name if method is None else f"{canonical_name(method)}:{name}"] = values
    spec = dataset_spec(wanted["dataset"])
    targets = spec.targets if wanted["targets"] == (ALL,) else wanted["targets"]
    if not wanted["methods"]:
        expected = "at least one for a new sweep, such as --methods fedavg,fedomg"
        raise SettingsError(field="--methods", value=None, expected=expected)
    if unknown := [target for target in targets if target not in spec.domains]:
        expected = f"all, or domains of {spec.name}: {', '.join(spec.domains)}"
        raise SettingsError(field="--targets", value=unknown[0], expected=expected)
    lists = {"methods": map(canonical_name, wanted["methods"]), "targets": targets, "seeds": wanted["seeds"]}
    once = {name: tuple(dict.fromkeys(values)) for name, values in lists.items()}
    return Request.read({**wanted, **once, "settings": settings}, "the request", SettingsError)


def runs_of(request: Request) -> tuple[tuple[PlannedRun, ...], dict[str, Grid]]:
    """Return the runs that a complete request asks for, and the grid of each method, without looking at data or jobs.

    Seeds are outermost, then held-out domains, then methods, then grid points, so that a table fills evenly.
    """
    grids, spec = _grids(request), dataset_spec(request.dataset)
    sites = dict(zip(spec.domains, spec.sites, strict=True))  # domains of any name; these are safe for files
    of_all: dict[str, Any] = {"dataset": request.dataset, "protocol": request.protocol}
    plan = []
    for seed, target, method in itertools.product(request.seeds, request.targets, request.methods):
        grid = grids[method]
        for values in itertools.product(*grid.values()):
            point = dict(zip(grid, values, strict=True))
            name = run_name(method, sites.get(target, target), seed, {axis: point[axis] for axis in axes_of(grid)})
            plan.append(PlannedRun(name=name, method=method, target=target, seed=seed, settings=point, **of_all))
    return tuple(plan), grids


def _grids(request: Request) -> dict[str, Grid]:
    """Return the grid of each method of a request.

    Settings for one method override those for all, which override the protocol's; each applies to the methods that have
    it. Raises ``SettingsError`` for one that no method has.
    """
    known = {method: frozenset(settings_of(method)) for method in request.methods}
    given = [(*split_key(key), values) for key, values in request.settings.items()]
    for owner, name, _ in given:
        meant = list(known) if owner is None else [owner]
        everything = {one for method in meant for one in known.get(method, ()) if one not in OWN_OPTIONS}
        if name not in everything:
            hint = did_you_mean(name, sorted(everything)) if everything else f"methods are {', '.join(known)}."
            hint = f"it is set by {OWN_OPTIONS[name]}." if name in OWN_OPTIONS else hint
            raise SettingsError(f"no method of {', '.join(meant)} has a setting {name!r} (--set); {hint}", field=name)
    grids: dict[str, Grid] = {}
    for method, names in known.items():
        values = {name: (one,) for name, one in base_settings(request.protocol, request.dataset, method).items()}
        for wanted in (None, method):
            values |= {name: own for owner, name, own in given if owner == wanted}
        grids[method] = {name: own for name, own in sorted(values.items()) if name in names}
    return grids


def axes_of(grid: Grid) -> list[str]:
    """Return the settings that have several values."""
    return [name for name, values in grid.items() if len(values) > 1]


def check_continues(earlier: SweepFile, now: SweepFile, folder: str) -> None:
    """Raise unless ``now`` has every run of ``earlier``, on the same images: lists may grow, nothing else."""
    planned = {run.name: run for run in runs_of(now.request)[0]}
    for run in runs_of(earlier.request)[0]:
        if planned.get(run.name) != run:
            change = "changed" if run.name in planned else "left out"
            expected = f"the request of sweep {folder} with longer lists, or another folder"
            raise SettingsError(field=f"run {run.name}", value=change, expected=expected)
    before, after = (
        {"STAND-IN data": one.data.stand_in, "images": one.data.images, "FDG_PRETRAINED_FILE": one.pretrained}
        for one in (earlier, now)
    )
    for field, value in before.items():
        if value is not None and value != after[field]:
            raise DataError(field=f"{field} of sweep {folder}", value=after[field], expected=f"{value}, as it began")


def with_budgets(
    plan: tuple[PlannedRun, ...], request: Request, data: DataFound, environment: Mapping[str, str]
) -> tuple[PlannedRun, ...]:
    """Return the plan with the sweep's budget for each reference on pooled data whose number of steps is not set.

    Between two checkpoints, a reference makes as many passes over the images as FedAvg does in a round of this sweep,
    and it has a checkpoint for each round; of several values of ``rounds`` or ``local_epochs``, the largest counts.
    """
    references = (run for run in plan if is_reference(run.method) and "steps" in settings_of(run.method))
    pooled = [run for run in references if "steps" not in run.settings]
    if not pooled:
        return plan
    grid = _grids(request.model_copy(update={"methods": (*request.methods, BASE)}))[BASE]
    largest = {name: max(grid[name]) for name in grid if len(grid[name]) == 1 or name in ("rounds", "local_epochs")}
    base = pooled[0].model_copy(update={"name": BASE, "method": BASE, "settings": largest})
    federated = make_job(base, stand_in=data.stand_in).protocol

    @cache_of_one_call
    def images(most: int | None) -> float:
        _, opened = _open_domains(request.dataset, environment, most)
        return statistics.fmean(len(found.train) for found in opened.values())

    def budget(run: PlannedRun) -> PlannedRun:
        own = make_job(run, stand_in=data.stand_in).protocol
        each = math.ceil(federated.local_epochs * images(own.max_samples_per_domain) / own.batch_size)
        steps = {"steps": each * federated.rounds, "checkpoint_every": run.settings.get("checkpoint_every", each)}
        return run.model_copy(update={"settings": {**run.settings, **steps}})

    return tuple(budget(run) if run in pooled else run for run in plan)


def check_protocols(protocols: Collection[Protocol], environment: Mapping[str, str]) -> None:
    """Raise an error for a missing package, a network that a method cannot train, or weights that cannot be read."""
    for protocol in protocols:
        TASKS.get(protocol.task).check_packages()
        check_network(protocol)
        check_brought_network(protocol)
    file, sha256 = named_weights(environment)
    for model, mode, norm in {(one.model, one.pretrained, one.normalization) for one in protocols}:
        read_weights(model, mode, file, sha256, norm)


def check_machine(environment: Mapping[str, str]) -> None:
    """Raise ``SettingsError`` for a variable of this machine that no run could use, or a device that is not there."""
    read_site_config("of this machine", None, environment).torch_device()
    chosen_tracker(None, environment)
    statsd_address(environment)


def pretrained_digest(environment: Mapping[str, str]) -> str:
    """Return the SHA-256 of the file with pretrained weights that the runs will find; empty if there is none."""
    file = named_path("FDG_PRETRAINED_FILE", environment)
    return sha256_of(file) if file is not None and file.is_file() else ""


def _open_domains(
    dataset: DatasetRef, environment: Mapping[str, str], max_samples: int | None = None
) -> tuple[bool, dict[str, DomainData]]:
    root, cache, file = (named_path(name, environment) for name in ("FDG_DATA_ROOT", "FDG_CACHE", "FDG_DATASET_FILE"))
    found = find_data_root(dataset, root, cache)
    options: dict[str, Any] = {"seed": 0, "max_samples": max_samples, "dataset_file": file}
    return found.stand_in, {
        domain: open_domain(found.path, dataset, domain, **options) for domain in dataset_spec(dataset).domains
    }


def look_at_data(dataset: DatasetRef, environment: Mapping[str, str], targets: Collection[str]) -> DataFound:
    """Return the number of images per domain in the place where the runs will find them.

    Raises ``DataError`` for a domain with none to train or validate on where another of ``targets`` is held out.
    """
    stand_in, domains = _open_domains(dataset, environment)
    images: dict[str, int] = {}
    for domain, data in domains.items():
        if {*targets} - {domain} and not (data.train and data.validation):
            found = [("training", len(data.train)), ("validation", len(data.validation))]
            expected = "at least one of each: a class of two images or more has one for validation"
            raise DataError(field=f"domain {domain!r}, its images", value=found, expected=expected)
        images[domain] = len({sample.file for sample in (*data.train, *data.validation, *data.test)})
    return DataFound(stand_in=stand_in, images=images)


def title_of_data(dataset: DatasetRef, *, stand_in: bool) -> str:
    """Return what runs on this data set are told to be on; the stand-in is named as such."""
    title = dataset_spec(dataset).title
    return f"the STAND-IN for {title} (not the data itself)" if stand_in else title


def overview(prepared: Prepared, store: Store) -> Iterator[str]:
    """Yield the lines of a plan: size, states, the fixed settings of the methods, and the axes that one lacks."""
    request, plan = prepared.content.request, prepared.plan
    title = title_of_data(request.dataset, stand_in=prepared.content.data.stand_in)
    sizes = [counted(len(getattr(request, name)), name[:-1]) for name in ("methods", "targets", "seeds")]
    yield f"{counted(len(plan), 'run')} on {title}, protocol {request.protocol}: {', '.join(sizes)}"
    states = [store.state(run.name) for run in plan]
    yield ", ".join(f"{states.count(state)} {state}" for state in ("finished", "failed", "to do"))
    alike: dict[str, list[str]] = {}
    for method, grid in prepared.grids.items():
        pairs = [(name, values[0]) for name, values in sorted(grid.items()) if len(values) == 1]
        fixed = ", ".join(f"{name} {value if isinstance(value, str) else as_json(value)}" for name, value in pairs)
        alike.setdefault(fixed or "its own defaults", []).append(method)
    yield from (f"{', '.join(methods)}: {fixed}" for fixed, methods in alike.items())
    for axis in sorted({axis for grid in prepared.grids.values() for axis in axes_of(grid)}):
        having = [method for method, grid in prepared.grids.items() if axis in axes_of(grid)]
        if without := [method for method in prepared.grids if method not in having]:
            once = f"run{'s' * (len(without) == 1)} once"
            yield f"{axis} is an axis of {', '.join(having)}; {', '.join(without)} {once} for all its values"
