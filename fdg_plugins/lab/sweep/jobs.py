# SPDX-License-Identifier: Apache-2.0
"""The job of a run: a federation's, for a method by name, or the plan of a reference. Which is one, a name decides."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

from fdg_plugins.errors import SettingsError, did_you_mean, shorten
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.lab.centralised.plan import PLAN_FILE, make_plan, setting_names, write_plan
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.run import JOB
from fdg_plugins.plugins.composition import BASE, find_method, parse_method, title_of
from fdg_plugins.plugins.methods import METHODS, REFERENCES
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.recipes import make_recipe
from fdg_plugins.recipes import settings_of as recipe_settings
from fdg_plugins.settings.defaults import protocol_settings
from fdg_plugins.settings.protocol import Protocol

CONFIG_FILE = Path("app_server", "config", "config_fed_server.json")


class Job(NamedTuple):
    """The job of a run: its protocol, its number of sites (1: a reference), and what writes it to ``<folder>/job``.

    ``file``, relative to the job, determines the run completely.
    """

    protocol: Protocol
    sites: int
    write: Callable[[Path], object]
    file: Path = CONFIG_FILE


def make_job(run: PlannedRun, *, stand_in: bool) -> Job:
    """Return the job of a planned run; raise ``SettingsError`` for a setting that it refuses."""
    if is_reference(run.method):
        where = (run.method, run.dataset, run.target, run.seed, run.settings)
        own = make_plan(*where, protocol=run.protocol, stand_in=stand_in)
        return Job(own.protocol, 1, lambda folder: write_plan(own, folder / JOB), Path(PLAN_FILE))
    recipe = make_recipe(run.method, run.dataset, name=JOB, target=run.target, seed=run.seed, **run.settings)
    plan = recipe.plans.stand_in if stand_in else recipe.plans.real
    return Job(plan.protocol, len(recipe.sites), lambda folder: recipe.export(str(folder)))


def is_reference(method: str) -> bool:
    """Return whether the first part of a name is a reference, which runs without a federation."""
    return method.split("+")[0] in REFERENCES


def is_known(method: str) -> bool:
    """Return whether the first part of a name is a reference or a published method, in any spelling."""
    return is_reference(method) or find_method(method.split("+")[0]) is not None


def canonical_name(method: str) -> str:
    """Return the name of a reference, the published name of a method, or that of the composition.

    Raises ``SettingsError``, with a near match, for an unknown name; references cannot be composed.
    """
    if method in REFERENCES:
        return method
    if is_reference(method) or not is_known(method):
        hint = did_you_mean(method.split("+")[0], [*METHODS.names(), *REFERENCES])
        raise SettingsError(f"method {shorten(method)} is neither a federated method nor a reference; {hint}")
    return parse_method(method).name


def title(method: str) -> str:
    """Return the title of a reference, or of a method by its canonical name."""
    return ALGORITHMS[method].title if is_reference(method) else title_of(method)


def settings_of(method: str) -> Collection[str]:
    """Return the names of the settings of a method's recipe, or of a reference."""
    return setting_names(method) if is_reference(method) else recipe_settings(method)


def base_settings(protocol: str, dataset: DatasetRef, method: str) -> dict[str, Any]:
    """Return the settings of a named protocol that are known to ``method``, before any that are given.

    A reference on pooled data receives the protocol's name, whose values differ from those of federated runs.
    """
    known, pooled = settings_of(method), is_reference(method) and ALGORITHMS[method].pools
    federated = parse_method(BASE if is_reference(method) else method)
    found = {} if pooled else protocol_settings(protocol, dataset, federated)
    return {name: value for name, value in found.items() if name in known}
