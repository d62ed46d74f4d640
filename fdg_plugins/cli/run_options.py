# SPDX-License-Identifier: Apache-2.0
"""The options of ``fdg run``, with their help texts."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fdg_plugins.cli.sweep_options import ProtocolName
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.engine.names import EngineName
from fdg_plugins.lab.sweep.values import read_settings, split_key

WhatArgument = Annotated[
    str,
    typer.Argument(
        metavar="METHOD|JOBFOLDER",
        help="A method or composition by name (fedavg, fedomg+ga), a reference on pooled data (erm, irm), or a job "
        "folder (jobs/pacs_fedomg).",
        show_default=False,
    ),
]
TargetOption = Annotated[
    str | None, typer.Option(help="The domain to hold out.", show_default="the first of the data set")
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=2**31 - 1,
        metavar="N",
        help="Seed of splits, initial weights, order and augmentation.",
        show_default="0",
    ),
]
ProtocolOption = Annotated[
    ProtocolName,
    typer.Option(
        metavar="NAME",
        help="paper: as the recipe has it; quick: minutes on a CPU; fedomg, fedomg-fl, fediir, feddim, feddg-ga: that "
        "of the paper's comparisons. --set overrides it.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of protocol or method. May be repeated.",
        show_default=False,
    ),
]
EngineOption = Annotated[
    EngineName,
    typer.Option(
        metavar="NAME",
        help="What executes the run: simulator (FLARE's), process (one process), or poc (a provisioned federation).",
    ),
]
ToOption = Annotated[
    Path | None,
    typer.Option(help="A new or empty folder; default: a new one in runs/, named after the run and the time."),
]


def read_values(texts: list[str]) -> dict[str, Any]:
    """Return the value of each setting from ``NAME=VALUE``; ``SettingsError`` for another form or several values."""

    settings = {}
    for key, values in read_settings(texts).items():
        owner, name = split_key(key)
        if owner is not None or len(values) != 1:
            raise SettingsError(f"--set {key} has the form of a sweep's, expected NAME=VALUE with one value.")
        settings[name] = values[0]
    return settings
