# SPDX-License-Identifier: Apache-2.0
"""``fdg plot``: figures of finished runs, made from their records."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.cli.found import PathsArgument, RoundsOption, runs_below
from fdg_plugins.cli.output import write_output
from fdg_plugins.errors import DataError, FDGError, load_extra

WIDTH = 3.3  # inches, of a paper's column


class Selection(StrEnum):
    """The model of a run that is shown."""

    LAST = "last"
    SOURCE_VALIDATION = "source_validation"
    SOURCE_WORST = "source_worst"
    ORACLE = "oracle"


def plot(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="convergence, cosines, weights, sensitivity, partition; or all that the runs allow.",
            show_default=False,
        ),
    ],
    paths: PathsArgument,
    to: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("figures"),
    selection: Annotated[
        Selection,
        typer.Option(
            metavar="RULE",
            help="Which model of a run is shown (sensitivity): last, source_validation, source_worst, oracle.",
        ),
    ] = Selection.SOURCE_VALIDATION,
    setting: Annotated[
        str | None,
        typer.Option(
            help="The setting on the x axis (sensitivity), such as kappa.", show_default="the one that varies"
        ),
    ] = None,
    rounds: RoundsOption = None,
) -> None:
    """Make figures of finished runs, with their numbers.

    Reads every results.json below the paths.

    Examples:

      fdg plot convergence sweeps/pacs

      fdg plot sensitivity sweeps/kappa --setting kappa --to figures/kappa

      fdg plot all simulator_workspace
    """
    runs = runs_below(paths, rounds)
    load_extra("matplotlib", "fdg plot", "lab")
    from fdg_plugins.lab.analysis.facts import notes_on_runs
    from fdg_plugins.lab.analysis.figures import Picture, kinds_of, make_pictures
    from fdg_plugins.lab.analysis.figures.drawing import FORMATS, draw, render

    kinds = kinds_of(kind)
    notes = notes_on_runs(runs)
    made: list[Picture] = []
    for name in kinds:
        try:
            made += make_pictures(name, runs, setting, selection.value)
        except FDGError as error:
            if len(kinds) == 1:
                raise
            say(f"{name} is left out: {' '.join(str(error).split())}", style="yellow", on_stderr=True)
    for note in notes:
        say(f"Note: {note}", style="yellow", on_stderr=True)
    if not made:
        raise DataError(f"these runs allow no figure of the kinds {', '.join(kinds)}.")
    for picture in made:
        figure = draw(picture, WIDTH)
        contents = {form: render(figure, picture, form) for form in FORMATS}
        contents["csv"] = picture.numbers().to_csv(index=False, lineterminator="\n").encode()
        for suffix, content in contents.items():
            write_output(to / f"{picture.name}.{suffix}", content, "--to")
        say(f"{to / picture.name}: {', '.join(contents)}")
