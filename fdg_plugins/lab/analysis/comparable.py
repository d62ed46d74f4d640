# SPDX-License-Identifier: Apache-2.0
"""Which runs may share a table: they may differ only in method, held-out domain and seed.

Centralised references may be compared with federated runs on the same data: model, data and images must agree among
all, and training settings such as the number of rounds among the runs of each kind. Sites that train alone must agree
with federated runs in everything: the same passes over the same images.
"""

import json
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.runs import Run, default_settings, grouped, method_order, method_title
from fdg_plugins.lab.centralised.plan import SCHEDULE_SETTINGS, SHARED_SETTINGS
from fdg_plugins.messages import CensusReply
from fdg_plugins.models.pretrained import OWN_FILE
from fdg_plugins.plugins.versions import is_plugin
from fdg_plugins.record.method_settings import differing, method_fields, method_settings
from fdg_plugins.settings.protocol import AUTO

# A table ranges over the first two; the others belong to the method, or change no result.
FREE_FIELDS = {
    *("target", "seed", "objective", "gap_split"),
    *("plugins", "keep_local_models", "scores", "enable_tensor_disk_offload"),
}

# Settings by which sites share a domain.
DIVIDING = {"sites", "sites_per_domain", "partition", "dirichlet_alpha", "mix_share", "least_images"}


@dataclass(frozen=True)
class Group:
    """The runs of one method with its settings.

    ``title`` names it and the settings that distinguish it from other groups or from its defaults; ``label`` also the
    ``chosen`` ones, those apart from which it was grouped and of which its runs have several values: ``FedOMG (kappa
    chosen)``.
    """

    method: str
    title: str
    label: str
    runs: tuple[Run, ...]
    chosen: tuple[str, ...] = ()

    @property
    def is_reference(self) -> bool:
        """Whether this is a reference."""
        return self.runs[0].is_reference

    def held_out(self, target: str) -> list[Run]:
        """Return the runs whose held-out domain is ``target``."""
        return [run for run in self.runs if run.target == target]


def group_runs(runs: Sequence[Run], apart_from: Collection[str] = (), *, beside_defaults: bool = True) -> list[Group]:
    """Return the runs by method and settings, except those ``apart_from``, in the order of tables.

    A title names the settings that differ between runs of the method on one data set or, ``beside_defaults``, from the
    method's defaults there. So a method that has its defaults everywhere is one group, though they are not the same on
    all data sets.
    """
    shown: dict[str, set[str]] = {}
    for (method, _), members in grouped(runs, lambda run: (run.method, str(run.dataset))).items():
        default = default_settings(members[0].record) if beside_defaults else None
        settings = [*(method_settings(run.record) for run in members), *([default] if default is not None else [])]
        shown.setdefault(method, set()).update(differing(settings))

    def key(run: Run) -> tuple[Any, ...]:
        own = method_settings(run.record)
        return run.method, *(own.get(name) for name in sorted(shown[run.method].difference(apart_from)))

    found, between = [], [name for name in apart_from if _differs_between_methods(runs, name)]
    for (method, *_), members in grouped(runs, key).items():
        chosen = tuple(name for name in apart_from if len({value_of(run, name) for run in members}) > 1)
        own, title = method_settings(members[0].record), method_title(method)
        words = [f"{name} {own.get(name, 'unset')}" for name in sorted(shown[method].difference(chosen))]
        words += [f"{name} {value_of(members[0], name)}" for name in between if name not in {*own, *chosen}]
        told = [*words, *[f"{', '.join(chosen)} chosen"] * bool(chosen)]
        name, label = (f"{title} ({', '.join(of)})" if of else title for of in (words, told))
        found.append(Group(method, name, label, tuple(members), chosen))
    return sorted(found, key=lambda group: (method_order(group.method), group.label))


def comparable_groups(
    runs: Sequence[Run], apart_from: Collection[str] = (), *, beside_defaults: bool = True
) -> list[Group]:
    """Return the groups of runs that may share a table, without duplicates; raise ``SettingsError`` for others."""
    check_comparable(runs, apart_from)
    return group_runs(without_repeats(runs, apart_from), apart_from, beside_defaults=beside_defaults)


def value_of(run: Run, setting: str) -> Hashable:
    """Return a run's value of a setting of its method, else of its protocol; None if it has no such setting."""
    return _value(run, method_settings(run.record), setting)


def _value(run: Run, own: Mapping[str, Any], setting: str) -> Hashable:
    value = own[setting] if setting in own else getattr(run.record.protocol, setting, None)
    return value if isinstance(value, Hashable) else json.dumps(value, sort_keys=True, default=str)


def varied_settings(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the settings that have several values among the runs of one method, sorted by name."""
    values: dict[tuple[str, str], set[Any]] = {}
    for run in runs:
        own = method_settings(run.record)
        for name in {*type(run.record.protocol).model_fields, *own} - FREE_FIELDS:
            values.setdefault((run.method, name), set()).add(_value(run, own, name))
    return tuple(sorted({name for (_, name), found in values.items() if len(found) > 1}))


def _differs_between_methods(runs: Sequence[Run], setting: str) -> bool:
    """Return whether a setting of the protocol, such as the learning rate, is not the same in all runs.

    That of a method, or a field over which a table ranges, is none.
    """
    values = {value_of(run, setting) for run in runs if setting not in method_settings(run.record)}
    return len(values) > 1 and setting not in FREE_FIELDS


def check_varies(runs: Sequence[Run], setting: str) -> None:
    """Raise ``SettingsError`` unless ``setting`` has several values in the runs of a method, or between methods."""
    varied = varied_settings(runs)
    if setting not in varied and not _differs_between_methods(runs, setting):
        found = sorted({str(value_of(run, setting)) for run in runs} - {"None"})
        came = f"is {', '.join(found)} in every run of a method" if found else "is in no run"
        raise SettingsError(
            f"setting {setting!r} {came}, expected one that varies: {', '.join(varied) or 'none does'}."
        )


def check_comparable(runs: Sequence[Run], apart_from: Collection[str] = ()) -> None:
    """Raise ``SettingsError`` naming the first difference, both values and both runs.

    ``apart_from``: fields of the protocol that may differ.

    Compares the kind of data, the protocol without held-out domain, seed and method, the source of the initial weights,
    the package's major version, the version of each method's plug-ins, the source domains of each held-out one, and the
    splits of each domain over its sites: the number of sites, the numbers of images and, among runs of one seed, the
    images themselves by their hash. Settings that only concern training are compared among federated runs, and among
    centralised ones.
    """
    seen: dict[str, tuple[Run, Any]] = {}
    for run in runs:
        for what, value in _facts(run, apart_from):
            other, expected = seen.setdefault(what, (run, value))
            if value != expected:
                raise SettingsError(
                    f"these runs cannot stand in one table: {what} is {_text(expected)} in {other.folder} and "
                    f"{_text(value)} in {run.folder}."
                )


def without_repeats(runs: Sequence[Run], apart_from: Collection[str] = ()) -> tuple[Run, ...]:
    """Return the runs without duplicates.

    Raises ``SettingsError`` for two runs of one method, held-out domain, seed and values of ``apart_from`` with
    different results.
    """
    kept: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        settings = (*method_settings(run.record).items(), *(value_of(run, name) for name in apart_from))
        first = kept.setdefault((run.method, settings, str(run.dataset), run.target, run.seed), run)
        if first.record.evaluations != run.record.evaluations:
            raise SettingsError(
                f"two runs of {run.method}, held-out domain {run.target}, seed {run.seed} differ in their results: "
                f"{first.folder} and {run.folder}; expected one of them."
            )
    return tuple(kept.values())


def _facts(run: Run, apart_from: Collection[str]) -> Iterator[tuple[str, Any]]:
    record = run.record
    yield "the stand-in", "used" if record.stand_in else "not used"
    yield "data", record.data
    yield "data set", run.dataset
    free = {*FREE_FIELDS, *method_fields(record), *apart_from}
    for name, value in record.protocol.model_dump(exclude=free).items():
        if not run.is_pooled or name not in SCHEDULE_SETTINGS:
            shared = name in SHARED_SETTINGS or not run.is_pooled
            yield f"{name} of the {'protocol' if shared else 'centralised runs'}", value
    for name in SCHEDULE_SETTINGS if run.is_pooled else ():  # in place of the protocol's
        if name not in free:
            yield f"{name} of the centralised runs", record.method.settings.get(name)
    yield "the source of the initial weights", record.initial_weights.label
    if record.initial_weights.label == OWN_FILE:  # each network has a file of its own
        yield f"the SHA-256 of the pretrained file of {record.protocol.model}", record.initial_weights.sha256
    yield "the major version of fdg-plugins", record.versions.get("fdg-plugins", "unknown").split(".")[0]
    for name, version in record.versions.items():
        if is_plugin(name):  # other methods may not use what has changed
            yield f"the version of {name}, with {run.method},", version
    domains = {reply.domain for reply in record.census.values()} - {run.target}
    yield f"the list of source domains with {run.target} held out", " and ".join(sorted(domains))
    for domain, replies in sorted(grouped(record.census.values(), lambda reply: reply.domain).items()):
        yield from _split(
            run, domain, replies, [f" with {name} {value_of(run, name)}" for name in DIVIDING & {*apart_from}]
        )


def _split(run: Run, domain: str, replies: Sequence[CensusReply], divided: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the split of a domain; ``divided``: the values of settings that divide a source domain and may differ."""
    role = "held-out" if domain == run.target else "source"
    where = f"of the {role} domain {domain}{''.join(sorted(divided)) if role == 'source' else ''}"
    by_seed = f" under seed {run.seed}" if role == "source" and run.record.protocol.partition != "equal" else ""
    names = (re.sub(rf"@{run.seed}(-[0-9a-f]{{16}})?\b", "@seed", reply.split) for reply in replies)
    yield f"the split {where}", ", ".join(sorted(names))
    counts = sorted((reply.num_train, reply.num_validation, reply.num_test) for reply in replies)
    yield f"the number of training, validation and test images {where}{by_seed}", counts
    if run.record.protocol.precision == AUTO:
        yield f"the precision {where}", ", ".join(sorted(str(reply.precision) for reply in replies))
    hashes = sorted(reply.split_hash for reply in replies)
    yield f"the hash of the split {where} under seed {run.seed}", ", ".join(hashes)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join("/".join(str(part) for part in parts) for parts in value)
    return "unset" if value is None else str(value)
