# SPDX-License-Identifier: Apache-2.0
"""The arguments and options of ``fdg plot``, with their help texts."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Selection(StrEnum):
    """The model of a run that is shown."""

    LAST = "last"
    SOURCE_VALIDATION = "source_validation"
    SOURCE_WORST = "source_worst"
    ORACLE = "oracle"


KindArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="convergence, cosines, gaps, weights, sensitivity, time, partition, overlays; or all that the runs allow.",
        show_default=False,
    ),
]
PathsArgument = Annotated[
    list[Path],
    typer.Argument(
        help="Folders that hold runs at any depth: of a sweep, of a run, a simulator's workspace, downloaded jobs.",
        show_default=False,
    ),
]
ToOption = Annotated[Path, typer.Option(help="Folder for the files.")]
SelectionOption = Annotated[
    Selection,
    typer.Option(
        metavar="RULE",
        help="Which model of a run is shown (sensitivity, overlays): last, source_validation, source_worst, oracle.",
    ),
]
SettingOption = Annotated[
    str | None,
    typer.Option(help="The setting on the x axis (sensitivity), such as kappa.", show_default="the one that varies"),
]
DataRootOption = Annotated[
    Path | None,
    typer.Option(
        envvar="FDG_DATA_ROOT",
        help="Folder that holds the data sets (overlays).",
        show_default=False,
    ),
]
TitleOption = Annotated[str | None, typer.Option(help="A headline of your own; the caption stays.")]
WidthOption = Annotated[
    float,
    typer.Option(min=2.5, max=20.0, metavar="W", help="Width in inches: 3.3 is a paper's column, 6.9 both columns."),
]
