# SPDX-License-Identifier: Apache-2.0
"""``fdg plot``: figures of finished runs, made from their records."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fdg_plugins.cli.console import say
from fdg_plugins.cli.report import PathsArgument, RoundsOption, runs_below
from fdg_plugins.errors import DataError, FDGError, load_extra
from fdg_plugins.lab.analysis.facts import notes_on_runs
from fdg_plugins.lab.analysis.figures import Picture, kinds_of, make_pictures


def plot(
    kind: Annotated[
        str,
        Argument(
            metavar="KIND",
            help="convergence, cosines, weights, measures, sensitivity, partition, reliability; or all that the runs "
            "allow.",
        ),
    ],
    paths: PathsArgument,
    to: Annotated[Path, Option(help="Folder for the files.")] = Path("figures"),
    rounds: RoundsOption = None,
) -> None:
    """Make figures of finished runs, with their numbers.

    Examples:

      fdg plot all sweeps/pacs
      fdg plot sensitivity sweeps/kappa --to figures/kappa
    """
    runs = runs_below(paths, rounds)
    load_extra("matplotlib", "fdg plot", "lab")
    from fdg_plugins.lab.analysis.figures.drawing import write_figure

    kinds, made = kinds_of(kind), list[Picture]()
    for name in kinds:
        try:
            made += make_pictures(name, runs)
        except FDGError as error:
            if len(kinds) == 1:
                raise
            say(f"{name} is left out: {' '.join(str(error).split())}", style="yellow", on_stderr=True)
    for note in notes_on_runs(runs):
        say(f"Note: {note}", style="yellow", on_stderr=True)
    if not made:
        raise DataError(f"these runs allow no figure of the kinds {', '.join(kinds)}.")
    for picture in made:
        say(write_figure(picture, to))
