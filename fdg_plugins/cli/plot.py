# SPDX-License-Identifier: Apache-2.0
"""``fdg plot``: figures of finished runs, made from their records."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fdg_plugins.cli.console import say
from fdg_plugins.cli.report import PathsArgument, RoundsOption, runs_below
from fdg_plugins.errors import DataError, check_choice
from fdg_plugins.lab.analysis.facts import notes_on_runs
from fdg_plugins.lab.analysis.figures import ALL, KINDS, make_pictures, pictures_of
from fdg_plugins.lab.analysis.figures.drawing import write_figure


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
    check_choice("KIND", kind, (ALL, *KINDS))
    made, lacking = pictures_of(runs) if kind == ALL else (make_pictures(kind, runs), {})
    for name, reason in lacking.items():
        say(f"{name} is left out: {reason}", style="yellow", on_stderr=True)
    for note in notes_on_runs(runs):
        say(f"Note: {note}", style="yellow", on_stderr=True)
    if not made:
        raise DataError(f"these runs allow no figure of the kinds {', '.join(KINDS)}.")
    for picture in made:
        say(write_figure(picture, to))
