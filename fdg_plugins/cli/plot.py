# SPDX-License-Identifier: Apache-2.0
"""``fdg plot``: figures of finished runs, made from their records."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fdg_plugins.cli.console import say
from fdg_plugins.cli.report import PathsArgument, RoundsOption, runs_below
from fdg_plugins.errors import DataError, load_extra
from fdg_plugins.lab.analysis.facts import notes_on_runs
from fdg_plugins.lab.analysis.figures import kinds_of, make_pictures, pictures_of
from fdg_plugins.storage import write_bytes


def plot(
    kind: Annotated[
        str,
        Argument(
            metavar="KIND", help="convergence, cosines, weights, sensitivity, partition; or all that the runs allow."
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
    from fdg_plugins.lab.analysis.figures.drawing import FORMATS, draw, render

    kinds = kinds_of(kind)
    made, lacking = pictures_of(kinds, runs) if len(kinds) > 1 else (make_pictures(kind, runs), {})
    for name, reason in lacking.items():
        say(f"{name} is left out: {reason}", style="yellow", on_stderr=True)
    for note in notes_on_runs(runs):
        say(f"Note: {note}", style="yellow", on_stderr=True)
    if not made:
        raise DataError(f"these runs allow no figure of the kinds {', '.join(kinds)}.")
    for picture in made:
        figure = draw(picture)
        contents = {form: render(figure, picture, form) for form in FORMATS}
        contents["csv"] = picture.numbers().to_csv(index=False, lineterminator="\n").encode()
        for suffix, content in contents.items():
            write_bytes(to / f"{picture.name}.{suffix}", content)
        say(f"{to / picture.name}: {', '.join(contents)}")
