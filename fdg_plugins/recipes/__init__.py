# SPDX-License-Identifier: Apache-2.0
"""Methods as FLARE recipes: a job from Python, exported to a folder or run in SimEnv, PocEnv or ProdEnv.

    >>> from fdg_plugins.recipes import FedOMGRecipe, make_recipe
    >>> recipe = FedOMGRecipe(dataset="pacs", target="sketch", kappa=0.25, rounds=20)
    >>> recipe.name, recipe.sites
    ('pacs_fedomg', ['art_painting', 'cartoon', 'photo', 'sketch'])

Weighting and objective compose under any direction, in the class or by name:

    >>> FedOMGRecipe(weighting="ga", objective={"name": "dim", "strength": 0.1}).method
    'fedomg+ga+dim'
    >>> make_recipe("fedomg+ga+dim", "pacs", strength=0.1, step_size=0.2).name
    'pacs_fedomg_ga_dim'

Each published method has a recipe that is made of its record (:func:`recipe_names`), and names its own settings:

    >>> import inspect
    >>> [*inspect.signature(FedOMGRecipe).parameters]
    ['dataset', 'kappa', 'server_lr', 'rescale', 'weighting', 'settings']

What is wrong is refused here, before any site is asked:

    >>> FedOMGRecipe(kapa=0.25)
    Traceback (most recent call last):
    fdg_plugins.errors.SettingsError: recipe fedomg: there is no setting 'kapa'; did you mean 'kappa'?

To import this package is to import ``nvflare.recipe``, which takes ``--export`` and ``--export-dir`` out of
``sys.argv``: a script that executes a recipe can then be asked to export it instead. No other part of the package
imports it.
"""

from nvflare.recipe import PocEnv, ProdEnv, SimEnv

from fdg_plugins.recipes.by_record import MethodRecipe, find_recipe, recipe_names
from fdg_plugins.recipes.catalogue import JOBS, METHODS, export_jobs, make_recipe, results_file, settings_of
from fdg_plugins.recipes.recipe import FDGRecipe

__all__ = [
    "JOBS",
    "METHODS",
    "FDGRecipe",
    "MethodRecipe",
    "PocEnv",
    "ProdEnv",
    "SimEnv",
    "export_jobs",
    "make_recipe",
    "recipe_names",
    "results_file",
    "settings_of",
]


def __getattr__(name: str) -> type[MethodRecipe]:
    """Return the recipe of a published method by the name of its class, such as ``FedOMGRecipe``."""
    found = find_recipe(name) if name.endswith("Recipe") else None
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found


def __dir__() -> list[str]:
    """Return the public names, with the recipes of this package's methods."""
    return sorted([*__all__, *recipe_names()])
