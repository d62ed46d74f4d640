# SPDX-License-Identifier: Apache-2.0
"""The runs in the folders that a user names, with a warning for those left out; what commands on them share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.errors import DataError, load_extra

if TYPE_CHECKING:
    from fdg_plugins.lab.analysis import Run

PathsArgument = Annotated[
    list[Path],
    typer.Argument(
        help="Folders that hold runs at any depth: of a sweep, of a run, a simulator's workspace, downloaded jobs.",
        show_default=False,
    ),
]
RoundsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Take federated runs as if they had ended after N rounds, also those that still go on or were stopped.",
        show_default=False,
    ),
]


def runs_below(paths: list[Path], rounds: int | None = None) -> "tuple[Run, ...]":
    """Return the runs below ``paths``; report on stderr what was left out. Raise ``DataError`` if there are none.

    ``rounds``: as :func:`~fdg_plugins.lab.analysis.runs.find_runs` takes it.
    """
    load_extra("pandas", "a command on finished runs", "lab")
    from fdg_plugins.lab.analysis import find_runs  # not loaded for ``--help``

    found = find_runs(paths, rounds)
    for folder, reason in found.left_out:
        say(f"Warning: {folder} is left out: {reason}", style="yellow", on_stderr=True)
    if not found.runs:
        asked = "finished run" if rounds is None else f"run of {rounds} rounds"
        raise DataError(f"there is no {asked} below {', '.join(map(str, paths))}; expected at least one results.json.")
    for path in found.empty:
        say(f"Warning: {path} holds no results.json.", style="yellow", on_stderr=True)
    return found.runs
