# SPDX-License-Identifier: Apache-2.0
"""The check whether runs may share a table: they may differ only in method, held-out domain and seed.

Centralised references may be compared with federated runs on the same data: model, data and images must agree among
all, and training settings such as the number of rounds among the runs of each kind.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.names import is_centralised
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.centralised.plan import SCHEDULE_SETTINGS, SHARED_SETTINGS
from fdg_plugins.models.pretrained import OWN_FILE
from fdg_plugins.record.method_settings import method_fields, method_settings
from fdg_plugins.settings.protocol import AUTO
from fdg_plugins.versions import is_plugin

# A table ranges over the first two; the others belong to the method, or change no result.
FREE_FIELDS = (
    "target",
    "seed",
    "objective",
    "gap_split",
    "plugins",
    "keep_local_models",
    "enable_tensor_disk_offload",
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


def without_repeats(runs: Sequence[Run]) -> tuple[tuple[Run, ...], tuple[tuple[Run, Run], ...]]:
    """Return the runs without duplicates, and each duplicate with the run that represents it.

    Raises ``SettingsError`` for two runs of one method, held-out domain and seed with different results.
    """
    kept: dict[tuple[Any, ...], Run] = {}
    copies: list[tuple[Run, Run]] = []
    for run in runs:
        first = kept.setdefault((*settings_key(run), run.target, run.seed), run)
        if first is run:
            continue
        if _judged(first) != _judged(run):
            raise SettingsError(
                f"two runs of {run.method}, held-out domain {run.target}, seed {run.seed} differ in their results: "
                f"{first.folder} and {run.folder}; expected one of them."
            )
        copies.append((run, first))
    return tuple(kept.values()), tuple(copies)


def settings_key(run: Run, apart_from: Collection[str] = ()) -> tuple[Any, ...]:
    """Return a key that identifies a method together with its settings, except those in ``apart_from``."""
    own = method_settings(run.record)
    return run.method, tuple((name, value) for name, value in own.items() if name not in apart_from)


def _facts(run: Run, apart_from: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield the facts that must agree: a description and a value each."""
    record = run.record
    yield "the stand-in", "used" if record.stand_in else "not used"
    yield "data", record.data
    yield "data set", run.dataset
    yield from _protocol_facts(run, apart_from)
    yield "the source of the initial weights", record.initial_weights.label
    if record.initial_weights.label == OWN_FILE:  # each network has a file of its own
        yield f"the SHA-256 of the pretrained file of {record.protocol.model}", record.initial_weights.sha256
    yield "the major version of fdg-plugins", record.versions.get("fdg-plugins", "unknown").split(".")[0]
    for name, version in _plugins(run).items():  # of other methods, a note says it: they may not use what has changed
        yield f"the version of {name}, with {run.method},", version
    domains = {reply.domain for reply in record.census.values()} - {run.target}
    yield f"the list of source domains with {run.target} held out", " and ".join(sorted(domains))
    yield from _splits(run)


def _protocol_facts(run: Run, apart_from: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of the protocol that must agree; of a centralised run its schedule stands in their place."""
    free = {*FREE_FIELDS, *method_fields(run.record), *apart_from}
    if is_centralised(run.method):
        yield from _centralised_facts(run, free)
        return
    for name, value in run.record.protocol.model_dump(exclude=free).items():
        yield f"{name} of the protocol", value


def _centralised_facts(run: Run, free: set[str]) -> Iterator[tuple[str, Any]]:
    for name, value in run.record.protocol.model_dump(exclude={*free, *SCHEDULE_SETTINGS}).items():
        yield f"{name} of the {'protocol' if name in SHARED_SETTINGS else 'centralised runs'}", value
    for name in (name for name in SCHEDULE_SETTINGS if name not in free):
        yield f"{name} of the centralised runs", run.record.method.settings.get(name)


def _splits(run: Run) -> Iterator[tuple[str, Any]]:
    """Yield the splits by domain and role, and what ``auto`` meant; the seed in a split's name is no difference."""
    by_seed = f" under seed {run.seed}" if run.record.protocol.partition != "equal" else ""
    sites: dict[tuple[str, str], list[Any]] = {}
    for reply in run.record.census.values():
        role = "held-out" if reply.domain == run.target else "source"
        sites.setdefault((role, reply.domain), []).append(reply)
    for (role, domain), replies in sorted(sites.items()):
        where = f"of the {role} domain {domain}"
        names = sorted(re.sub(rf"@{run.seed}(-[0-9a-f]{{16}})?\b", "@seed", reply.split) for reply in replies)
        yield f"the split {where}", ", ".join(names)
        counts = sorted((reply.num_train, reply.num_validation, reply.num_test) for reply in replies)
        yield f"the number of training, validation and test images {where}{by_seed if role == 'source' else ''}", counts
        if run.record.protocol.precision == AUTO:
            yield f"the precision {where}", ", ".join(sorted(str(reply.precision) for reply in replies))
        hashes = sorted(reply.split_hash for reply in replies)
        yield f"the hash of the split {where} under seed {run.seed}", ", ".join(hashes)


def _plugins(run: Run) -> dict[str, str]:
    """Return the versions of the plug-ins that the server knew of: of distributions, and the digests of files."""
    return {name: version for name, version in run.record.versions.items() if is_plugin(name)}


def notes_on_plugins(runs: Iterable[Run]) -> list[str]:
    """Return a note for each plug-in of which methods in one table had different versions."""
    found: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        for name, version in _plugins(run).items():
            methods = found.setdefault(name, {}).setdefault(version, [])
            if run.method not in methods:
                methods.append(run.method)
    return [
        f"{name} was not the same for all: "
        + "; ".join(f"{', '.join(of)} with {one}" for one, of in versions.items())
        + "."
        for name, versions in found.items()
        if len(versions) > 1
    ]


def _judged(run: Run) -> list[str]:
    return [evaluation.model_dump_json() for evaluation in run.record.evaluations]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join("/".join(str(part) for part in parts) for parts in value)
    return "unset" if value is None else str(value)
