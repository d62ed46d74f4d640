# SPDX-License-Identifier: Apache-2.0
"""``fdg plot``: figures of finished runs, made from their records."""

import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fdg_plugins.cli.console import say
from fdg_plugins.cli.found import runs_below
from fdg_plugins.cli.plot_options import (
    DataRootOption,
    KindArgument,
    PathsArgument,
    PointsOption,
    SamplesOption,
    Selection,
    SelectionOption,
    SettingOption,
    SitesOption,
    TitleOption,
    ToOption,
)
from fdg_plugins.cli.plugins import PluginFiles, load_plugins
from fdg_plugins.errors import DataError, FDGError, SettingsError

if TYPE_CHECKING:
    from fdg_plugins.analysis import Run
    from fdg_plugins.analysis.figures import Picture, Request

NUMBERS = "csv"


def plot(
    kind: KindArgument,
    paths: PathsArgument,
    to: ToOption = Path("figures"),
    selection: SelectionOption = Selection.SOURCE_VALIDATION,
    setting: SettingOption = None,
    data_root: DataRootOption = None,
    sites: SitesOption = None,
    points: PointsOption = 15,
    samples: SamplesOption = None,
    title: TitleOption = None,
    plugin: PluginFiles = None,
) -> None:
    """Make figures of finished runs: PNG, SVG, and a CSV of the plotted numbers.

    Reads every results.json below the paths; features, overlays and surface show one run, and need its
    models and its data. Needs matplotlib: pip install matplotlib.

    Examples:

      fdg plot convergence sweeps/pacs

      fdg plot sensitivity sweeps/kappa --setting kappa --to figures/kappa

      fdg plot surface simulator_workspace --data-root /data --points 25

      fdg plot overlays runs/fedavg-drive --data-root /data

      fdg plot all simulator_workspace --data-root /data
    """
    if find_spec("matplotlib") is None:
        raise SettingsError("figures need matplotlib, which is not installed; pip install matplotlib does it.")
    from fdg_plugins.analysis.figures import Request, kinds_of
    from fdg_plugins.cli.data_tables import track

    load_plugins(plugin)
    kinds = kinds_of(kind)
    request = Request(
        selection=selection.value,
        setting=setting,
        data_root=data_root,
        cache=_cache_folder(),
        sites=tuple(name.strip() for name in sites.split(",")) if sites is not None else None,
        points=points,
        samples=samples,
        track=track,
    )
    runs = runs_below(paths)
    made = [_make(name, runs, request, to, title, spare=len(kinds) > 1) for name in kinds]
    if not any(made):
        raise DataError(f"these runs allow no figure of the kinds {', '.join(kinds)}.")


def _cache_folder() -> Path | None:
    """Return the folder that the user names in ``FDG_CACHE``, None for the default."""
    from fdg_plugins.storage import user_path

    named = os.environ.get("FDG_CACHE", "").strip()
    return user_path(named, os.environ) if named else None


def _make(kind: str, runs: "Sequence[Run]", request: "Request", to: Path, title: str | None, *, spare: bool) -> bool:
    """Make the figures of one kind; return whether there is one. ``spare``: report an impossible kind, do not raise."""
    pictures = _pictures(kind, runs, request, spare=spare)
    for note in dict.fromkeys(note for picture in pictures for note in picture.notes):
        say(f"Note: {note}", style="yellow", on_stderr=True)
    for picture in pictures:
        _write(replace(picture, title=title) if title is not None else picture, to)
    return bool(pictures)


def _pictures(kind: str, runs: "Sequence[Run]", request: "Request", *, spare: bool) -> "Sequence[Picture]":
    from fdg_plugins.analysis.figures import make_pictures

    try:
        return make_pictures(kind, runs, request)
    except FDGError as error:
        if not spare:
            raise
        say(f"{kind} is left out: {' '.join(str(error).split())}", style="yellow", on_stderr=True)
        return ()


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
