# SPDX-License-Identifier: Apache-2.0
"""The one place where a sweep meets the recipes: which settings a method has, and the job folder of a planned run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fdg_plugins.composition import parse_method
from fdg_plugins.errors import SettingsError
from fdg_plugins.recipes import make_recipe, settings_of
from fdg_plugins.storage import read_json
from fdg_plugins.sweep.plan import PlannedRun
from fdg_plugins.sweep.store import JOB

__all__ = ["canonical_method", "difference", "server_config", "settings_of", "write_job"]

SERVER_CONFIG = Path("app_server", "config", "config_fed_server.json")


def canonical_method(text: str) -> str:
    """Return the one name of the method that ``text`` names; ``SettingsError`` if there is none."""
    return parse_method(text).name


def write_job(run: PlannedRun, folder: Path) -> None:
    """Write the job of a planned run to ``folder/job``, as FLARE's simulator runs it.

    Raises ``SettingsError``, which names the run, for a setting that does not exist or has a wrong value.
    """
    try:
        recipe = make_recipe(run.method, run.dataset, name=JOB, target=run.target, seed=run.seed, **run.settings)
    except SettingsError as error:
        raise SettingsError(f"run {run.name}: {error}") from error
    recipe.export(str(folder))


def server_config(job: Path) -> dict[str, Any]:
    """Return the server's config of the job in ``job``, which holds all that makes one run differ from another."""
    return dict(read_json(job / SERVER_CONFIG))


def difference(one: Any, other: Any, where: str = "config") -> str:
    """Return the first place at which two JSON values differ, with both values; empty if they are equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            if found := difference(one.get(key), other.get(key), key):
                return found
        return ""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return next((found for pair in zip(one, other, strict=True) if (found := difference(*pair, where))), "")
    return "" if one == other else f"{where} {one!r} there, {other!r} now"
