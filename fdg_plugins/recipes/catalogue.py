# SPDX-License-Identifier: Apache-2.0
"""Recipes by the name of a method, the jobs that this project keeps, and the location of a run's results."""

from pathlib import Path
from typing import Any

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.plugins.composition import COMBINED, parse_method
from fdg_plugins.plugins.methods import METHODS as RECORDS
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.recipes.recipe import FDGRecipe
from fdg_plugins.recipes.settings import setting_names
from fdg_plugins.record.run_files import RESULTS_FILE, SIMULATOR_FOLDER

# Our own compositions: FedDIM under FedOMG, alone and with GA's weights. No paper reports them.
_OURS = ("fedomg+dim", "fedomg+ga+dim")


COMPOSITIONS = (*(parse_method("+".join(pair)).name for pair in COMBINED), *_OURS)
# The methods with kept jobs, and those with kept jobs on RotatedMNIST and on the retinal vessels too.
METHODS = (*RECORDS.own(), *COMPOSITIONS)
_ON_ROTATED_MNIST = ("fedavg", "fedomg", "feddim", "fediir")
_ON_VESSELS = ("fedavg", "fedomg", "fedga", "feddim", "fediir", "harmofl")
JOBS = (
    *(("pacs", method) for method in METHODS),
    *(("rotatedmnist", method) for method in _ON_ROTATED_MNIST),
    *(("vessels", method) for method in _ON_VESSELS),
)

# Subfolders of the result of Run.get_result(): the simulator's workspace, or a downloaded job.
_RUN_FOLDERS = (SIMULATOR_FOLDER, "workspace")


def make_recipe(method: str, dataset: DatasetRef = "pacs", **settings: Any) -> FDGRecipe:
    """Return the recipe of ``method``: a published name, or one and parts in any order (``"fedomg+ga+dim"``).

    ``settings`` are those of :class:`~fdg_plugins.recipes.FDGRecipe`; numbers and truth values may also be text.
    Raises ``SettingsError`` for invalid settings and for a ``weighting`` or ``objective`` that changes the method.
    """
    recipe = FDGRecipe(method, dataset, **settings)
    if (name := parse_method(method).name) != recipe.method:
        raise SettingsError(
            f"method is {method!r}, but its weighting and objective make it {recipe.method!r}, not {name!r}."
        )
    return recipe


def settings_of(method: str) -> tuple[str, ...]:
    """Return the names of the settings that :func:`make_recipe` accepts for ``method``."""
    return setting_names(parse_method(method))


def job_recipes() -> dict[str, FDGRecipe]:
    """Return the recipes of all jobs that this project keeps, by the name of the job."""
    recipes = [make_recipe(method, dataset) for dataset, method in JOBS]
    return {recipe.name: recipe for recipe in recipes}


def export_jobs(folder: str | Path) -> None:
    """Write all jobs that this project keeps to ``folder``, replacing earlier ones."""
    for recipe in job_recipes().values():
        recipe.export(str(folder))


def results_file(result: str | Path | None) -> Path:
    """Return the path of ``results.json`` in ``result``, the return value of ``Run.get_result()``.

    Raises ``DataError`` if there is none: the run has not begun, or its workspace was removed.
    """
    if result is None:
        raise DataError("the run has no result: it has not ended, or its environment could not be asked.")
    for folder in _RUN_FOLDERS:
        if (path := Path(result, folder, RESULTS_FILE)).is_file():
            return path
    raise DataError(f"folder {result} has no {RESULTS_FILE} in {' or '.join(_RUN_FOLDERS)}, expected that of a run.")
