# SPDX-License-Identifier: Apache-2.0
"""From a request to its runs: every seed, held-out domain, method and grid point, ordered to fill a table evenly.

Pure and deterministic: reads no file, draws no random number. A run's name depends only on the run, so adding methods,
domains, seeds or values leaves it unchanged.
"""

import hashlib
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError, did_you_mean
from fdg_plugins.lab.sweep.request import Request
from fdg_plugins.lab.sweep.values import as_json, split_key
from fdg_plugins.plugins.own_dataset import DatasetRef, plain_dataset

# Settings of every job that the sweep sets by its own options.
OWN_OPTIONS = {"dataset": "--dataset", "target": "--targets", "seed": "--seeds", "plugins": "--plugin"}
LONGEST_NAME = 120
_PLAIN_VALUE = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?|[A-Za-z0-9_.]+")
_PLAIN_LENGTH = 24


class PlannedRun(NamedTuple):
    """One run: its name and its parts. ``settings`` contains every setting that deviates from the method's own.

    ``protocol`` is the name of the sweep's protocol; if the method does not know it, its values are in ``settings``.
    """

    name: str
    dataset: DatasetRef
    protocol: str
    method: str
    target: str
    seed: int
    settings: Mapping[str, Any]

    def content(self) -> dict[str, Any]:
        """Return the run as a JSON value."""
        return {**self._asdict(), "dataset": plain_dataset(self.dataset)}


class Grid(NamedTuple):
    """The settings of one method: those with one value, and the axes, sorted by name, with their values."""

    fixed: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]

    def points(self) -> Iterator[dict[str, Any]]:
        """Yield the values of the axes at each point of the grid; one empty point if there are no axes."""
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))


def make_plan(request: Request, grids: Mapping[str, Grid]) -> tuple[PlannedRun, ...]:
    """Return all runs of ``request``: seeds outermost, then held-out domains, then methods, then grid points.

    Raises ``SettingsError`` for a list with a repeated entry.
    """
    for name in ("methods", "targets", "seeds"):
        if len({*(values := getattr(request, name))}) < len(values):
            raise SettingsError(field=name, value=values, expected="each of them once")
    spec = dataset_spec(request.dataset)
    sites = dict(zip(spec.domains, spec.sites, strict=True))  # domains of any name; these are safe for files
    return tuple(
        PlannedRun(
            name=run_name(method, sites.get(target, target), seed, point),
            dataset=request.dataset,
            protocol=request.protocol,
            method=method,
            target=target,
            seed=seed,
            settings={**grids[method].fixed, **point},
        )
        for seed in request.seeds
        for target in request.targets
        for method in request.methods
        for point in grids[method].points()
    )


def make_grids(
    request: Request,
    base_of: Callable[[str], Mapping[str, Any]],
    settings_of: Callable[[str], Collection[str]],
) -> dict[str, Grid]:
    """Return the grid of each method: settings for one method override those for all, which override its base.

    ``base_of`` returns the protocol's settings for a method, ``settings_of`` the names of all settings of a method. A
    setting applies to the methods that have it. Raises ``SettingsError`` for one that no method has.
    """
    known = {method: frozenset(settings_of(method)) for method in request.methods}
    for key in request.settings:
        owner, name = split_key(key)
        if name in OWN_OPTIONS:
            raise SettingsError(f"--set names {name!r}, which a sweep takes from {OWN_OPTIONS[name]}.")
        if owner is not None and owner not in known:
            raise SettingsError(f"--set {key}: method {owner!r} is not in the sweep, which has {', '.join(known)}.")
        meant = list(known) if owner is None else [owner]
        everything = frozenset[str]().union(*(known[method] for method in meant))
        if name not in everything:
            hint = did_you_mean(name, sorted(everything))
            raise SettingsError(f"--set {key}: no method of {', '.join(meant)} has a setting {name!r}; {hint}")
    return {method: _grid(method, names, request.settings, base_of(method)) for method, names in known.items()}


def _grid(method: str, known: frozenset[str], settings: Mapping[str, tuple[Any, ...]], base: Mapping[str, Any]) -> Grid:
    values = {name: (value,) for name, value in base.items()}
    for wanted in (None, method):
        values |= {split_key(key)[1]: given for key, given in settings.items() if split_key(key)[0] == wanted}
    own = {name: given for name, given in sorted(values.items()) if name in known}
    fixed = {name: given[0] for name, given in own.items() if len(given) == 1}
    return Grid(fixed, {name: given for name, given in own.items() if len(given) > 1})


def run_name(method: str, target: str, seed: int, point: Mapping[str, Any]) -> str:
    """Return a unique name that is safe for a file: ``fedomg-sketch-seed0-kappa0.5``."""
    parts = [method, target, f"seed{seed}", *(f"{name}{_value_text(point[name])}" for name in sorted(point))]
    name = "-".join(parts)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{_digest(name)}"


def _value_text(value: Any) -> str:
    """Return a value as part of a file name; other values than plain words and numbers get a digest.

    So do words with "-", which could be mistaken for the start of the next setting, and words that look like another
    JSON value: "1" and 1 are different values.
    """
    text = value if isinstance(value, str) else as_json(value)
    looks_like_json = isinstance(value, str) and re.match(r"-?\d|(true|false|null)$", value) is not None
    if len(text) <= _PLAIN_LENGTH and _PLAIN_VALUE.fullmatch(text) and not looks_like_json:
        return text
    words = re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_")[:_PLAIN_LENGTH]
    return f"{words}_{_digest(as_json(value))}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
