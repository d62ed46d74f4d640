# SPDX-License-Identifier: Apache-2.0
"""``fdg plot``: figures from finished runs, made from their records."""

import os
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.cli.found import runs_below
from fdg_plugins.cli.plugins import PluginFiles, load_plugins
from fdg_plugins.errors import DataError, FDGError, SettingsError

if TYPE_CHECKING:
    from fdg_plugins.analysis import Run
    from fdg_plugins.analysis.figures import Picture, Request

NUMBERS = "csv"


class Selection(StrEnum):
    """Which model of a run is shown."""

    LAST = "last"
    SOURCE_VALIDATION = "source_validation"
    SOURCE_WORST = "source_worst"
    ORACLE = "oracle"


def plot(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="convergence, cosines, gaps, weights, sensitivity, time, features, surface; or all that the runs "
            "allow.",
            show_default=False,
        ),
    ],
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Folders that hold runs at any depth: of a sweep, of a run, a simulator's workspace, downloaded jobs.",
            show_default=False,
        ),
    ],
    to: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("figures"),
    selection: Annotated[
        Selection, typer.Option(help="Which model of a run is shown (sensitivity, features).")
    ] = Selection.SOURCE_VALIDATION,
    setting: Annotated[
        str | None,
        typer.Option(
            help="The setting on the x axis (sensitivity), such as kappa.", show_default="the one that varies"
        ),
    ] = None,
    data_root: Annotated[
        Path | None,
        typer.Option(
            envvar="FDG_DATA_ROOT", help="Folder that holds the data sets (features, surface).", show_default=False
        ),
    ] = None,
    sites: Annotated[
        str | None,
        typer.Option(help="Three sites, such as a,b,c (surface).", show_default="the first three by name"),
    ] = None,
    points: Annotated[int, typer.Option(min=3, max=201, help="Models along each side of the grid (surface).")] = 15,
    samples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Images of the held-out domain (surface), or of each domain (features).",
            show_default="200, or 100",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="A headline of your own; the caption stays.")] = None,
    plugin: PluginFiles = None,
) -> None:
    """Make figures of finished runs: PNG, SVG, and a CSV of the plotted numbers.

    Reads every results.json below the paths; surface and features are of one run, and need its models and its data.
    Needs matplotlib: pip install matplotlib.

    Examples:

      fdg plot convergence sweeps/pacs

      fdg plot sensitivity sweeps/kappa --setting kappa --to figures/kappa

      fdg plot surface simulator_workspace --data-root /data --points 25

      fdg plot all simulator_workspace --data-root /data
    """
    if find_spec("matplotlib") is None:
        raise SettingsError("figures need matplotlib, which is not installed; pip install matplotlib does it.")
    from fdg_plugins.analysis.figures import Request, kinds_of
    from fdg_plugins.cli.data_tables import track
    from fdg_plugins.storage import user_path

    load_plugins(plugin)
    kinds = kinds_of(kind)
    cache = os.environ.get("FDG_CACHE", "").strip()
    request = Request(
        selection=selection.value,
        setting=setting,
        data_root=data_root,
        cache=user_path(cache, os.environ) if cache else None,
        sites=tuple(name.strip() for name in sites.split(",")) if sites is not None else None,
        points=points,
        samples=samples,
        track=track,
    )
    runs = runs_below(paths)
    made = [_make(name, runs, request, to, title, spare=len(kinds) > 1) for name in kinds]
    if not any(made):
        raise DataError(f"these runs allow no figure of the kinds {', '.join(kinds)}.")


def _make(kind: str, runs: "Sequence[Run]", request: "Request", to: Path, title: str | None, *, spare: bool) -> bool:
    """Make the figures of one kind; return whether there is one. ``spare``: what cannot be made is said, no error."""
    from fdg_plugins.analysis.figures import make_pictures

    try:
        pictures = make_pictures(kind, runs, request)
    except FDGError as error:
        if not spare:
            raise
        say(f"{kind} is left out: {' '.join(str(error).split())}", style="yellow", on_stderr=True)
        return False
    for note in dict.fromkeys(note for picture in pictures for note in picture.notes):
        say(f"Note: {note}", style="yellow", on_stderr=True)
    for picture in pictures:
        _write(replace(picture, title=title) if title is not None else picture, to)
    return bool(pictures)


def _write(picture: "Picture", to: Path) -> None:
    """Write one figure in every format, and its numbers."""
    from fdg_plugins.analysis.figures import render_csv
    from fdg_plugins.analysis.figures.drawing import FORMATS, draw, render
    from fdg_plugins.storage import write_bytes

    figure = draw(picture)
    contents = {form: render(figure, picture, form) for form in FORMATS} | {NUMBERS: render_csv(picture).encode()}
    for suffix, content in contents.items():
        file = to / f"{picture.name}.{suffix}"
        write_bytes(file, content)
        say(f"{file}: written")
