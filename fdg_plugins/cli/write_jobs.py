# SPDX-License-Identifier: Apache-2.0
"""``fdg export jobs``: write the jobs of this project, which an installed package does not show, to a folder."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.naming import did_you_mean


def jobs(
    to: Annotated[Path, typer.Option(help="The folder into which the jobs are written, each in one of its own.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Jobs by name, such as pacs_fedomg; default: all.", show_default=False
        ),
    ] = None,
) -> None:
    """Write the jobs that belong to this package, for the simulator and for editing.

    Existing folders are never overwritten. A federation wants jobs without
    custom/ folders, which fdg export job makes from them.

    Examples:

      fdg export jobs --to jobs

      fdg export jobs pacs_fedomg vessels_fedavg --to jobs
    """
    from fdg_plugins.cli.jobs import own_arguments

    with own_arguments():
        from fdg_plugins.recipes.catalogue import job_recipes
    from fdg_plugins.storage import writing

    recipes = job_recipes()
    wanted = names or list(recipes)
    for name in wanted:
        if name not in recipes:
            raise SettingsError(f"there is no job {name!r}; {did_you_mean(name, recipes)}")
        if (to / name).exists():
            raise DataError(f"folder {to / name} exists already, expected one to be written.")
    with writing(to):
        for name in wanted:
            recipes[name].export(str(to))
    say(f"jobs written to {to}: {', '.join(wanted)}")
    say(f"next: nvflare simulator {shlex.quote(str(to / wanted[0]))}")
