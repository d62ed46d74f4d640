# SPDX-License-Identifier: Apache-2.0
"""Methods as FLARE recipes: a job built in Python, exported to a folder or run in SimEnv, PocEnv or ProdEnv.

    >>> from fdg_plugins.recipes import FDGRecipe, make_recipe
    >>> recipe = FDGRecipe("fedomg", dataset="pacs", target="sketch", kappa=0.25, rounds=20)
    >>> recipe.name, recipe.sites
    ('pacs_fedomg', ['art_painting', 'cartoon', 'photo', 'sketch'])

Weighting and objective compose with any direction, by argument or by name:

    >>> FDGRecipe("fedomg", weighting="ga", objective={"name": "dim", "strength": 0.1}).method
    'fedomg+ga+dim'
    >>> make_recipe("fedomg+ga+dim", "pacs", strength=0.1, step_size=0.2).name
    'pacs_fedomg_ga_dim'

Invalid settings are rejected here, before any site is involved:

    >>> FDGRecipe("fedomg", kapa=0.25)
    Traceback (most recent call last):
    fdg_plugins.errors.SettingsError: recipe fedomg: there is no setting 'kapa'; did you mean 'kappa'?

:func:`equip` adds the server's half of a method to a recipe of FLARE's own, over a user's own training script.

Importing this package imports ``nvflare.recipe``, which removes ``--export`` and ``--export-dir`` from ``sys.argv``: a
script that executes a recipe then exports it instead if asked to.
"""

from nvflare.recipe import PocEnv, ProdEnv, SimEnv

from fdg_plugins.plans import settings_of
from fdg_plugins.recipes.equip import equip
from fdg_plugins.recipes.recipe import JOBS, METHODS, FDGRecipe, export_jobs, make_recipe, results_file

__all__ = [
    "JOBS",
    "METHODS",
    "FDGRecipe",
    "PocEnv",
    "ProdEnv",
    "SimEnv",
    "equip",
    "export_jobs",
    "make_recipe",
    "results_file",
    "settings_of",
]
