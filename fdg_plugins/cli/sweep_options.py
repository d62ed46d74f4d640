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
    FEDOMG = "fedomg"
    FEDOMG_FL = "fedomg-fl"
    FEDIIR = "fediir"
    FEDDIM = "feddim"
    FEDDG_GA = "feddg-ga"


class SweepEngine(StrEnum):
    """What executes the runs of a sweep."""

    PROCESS = "process"
    SIMULATOR = "simulator"


ToOption = Annotated[
    Path, typer.Option(help="The sweep's folder: a new one, or one to go on with.", show_default=False)
]
MethodsOption = Annotated[
    str | None,
    typer.Option(help="Methods, and centralised references: fedavg,fedomg+ga+dim,irm.", show_default=False),
]
TargetsOption = Annotated[
    str | None, typer.Option(help="Domains to hold out, one at a time, or all.", show_default="all")
]
SeedsOption = Annotated[str | None, typer.Option(help="Seeds, such as 0,1,2.", show_default="0")]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of protocol or method; several values, NAME=1,2,3, are an axis of the grid; "
        "METHOD:NAME=VALUE is for one method. May be repeated.",
        show_default=False,
    ),
]
ProtocolOption = Annotated[
    ProtocolName | None,
    typer.Option(
        metavar="NAME",
        help="paper: as recipes and references have it; quick: minutes per run on a CPU; fedomg, fedomg-fl, fediir, "
        "feddim, feddg-ga: that of the paper's comparisons. --set overrides it.",
        show_default="paper",
    ),
]
ParallelOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Runs at a time; default: one per GPU, else one per core, with --engine simulator as many as leave each "
        "site a core.",
    ),
]
EngineOption = Annotated[
    SweepEngine,
    typer.Option(
        metavar="NAME",
        help="What executes a federated run: process (one process), or simulator (FLARE's, a process per site).",
    ),
]
AtOnceOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Sites of a run that compute at a time: in the simulator its processes (-t), default all, or one per core "
        "if they are many; in one process workers beside it, default none.",
    ),
]
GpusOption = Annotated[
    str | None,
    typer.Option(help="One run at a time on each GPU named; default: on all. 0,0,1 lets two runs share GPU 0."),
]
NoRetryOption = Annotated[bool, typer.Option("--no-retry-failed", help="Do not try again what failed before.")]
KeepModelsOption = Annotated[
    bool,
    typer.Option("--keep-models", help="Keep the models of each run: they are large."),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the plan; write nothing in the folder."),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="With the plan, name every run.")]
