# SPDX-License-Identifier: Apache-2.0
"""The options of ``fdg sweep``, with their help texts."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ProtocolName(StrEnum):
    """The protocol of the runs, before --set."""

    PAPER = "paper"
    QUICK = "quick"


ToOption = Annotated[
    Path, typer.Option(help="The sweep's folder: a new one, or one to go on with.", show_default=False)
]
MethodsOption = Annotated[
    str | None,
    typer.Option(help="Methods, and centralised references: fedavg,fedomg+ga+dim,irm.", show_default=False),
]
DatasetOption = Annotated[str | None, typer.Option(help="Data set, by name.", show_default="pacs")]
TargetsOption = Annotated[
    str | None, typer.Option(help="Domains to hold out, one at a time, or all.", show_default="all")
]
SeedsOption = Annotated[str | None, typer.Option(help="Seeds, such as 0,1,2.", show_default="0")]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE[,VALUE...]",
        help="A setting of protocol or method; several values are an axis of the grid; METHOD:NAME=VALUE is for "
        "one method. May be repeated.",
        show_default=False,
    ),
]
ProtocolOption = Annotated[
    ProtocolName | None,
    typer.Option(
        help="paper: as recipes and references have it; quick: minutes per run on a CPU. --set beats both.",
        show_default="paper",
    ),
]
DataRootOption = Annotated[
    Path | None,
    typer.Option(help="Folder that holds the data sets; default: FDG_DATA_ROOT, else the STAND-IN."),
]
ParallelOption = Annotated[
    int | None,
    typer.Option(min=1, help="Runs at a time; default: one per GPU, or as many as leave each site a core, at least 1."),
]
ThreadsPerRunOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Sites of a run that compute at a time; default: all, since fewer start a process per task."
    ),
]
GpusOption = Annotated[
    str | None,
    typer.Option(help="One run at a time on each GPU named; default: on all. 0,0,1 lets two runs share GPU 0."),
]
RetryFailedOption = Annotated[
    bool, typer.Option("--retry-failed/--no-retry-failed", help="Try again what failed before.")
]
KeepModelsOption = Annotated[
    bool,
    typer.Option("--keep-models/--no-keep-models", help="Keep the models of each run: they are large."),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the plan and its time, if known; write nothing in the folder."),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="With the plan, name every run.")]
