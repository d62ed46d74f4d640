# SPDX-License-Identifier: Apache-2.0
"""``fdg plot``: figures of finished runs, made from their records."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fdg_plugins.cli.console import say
from fdg_plugins.cli.found import RoundsOption, runs_below
from fdg_plugins.cli.output import write_output
from fdg_plugins.cli.own_data import DataOption, most_pixels
from fdg_plugins.cli.plot_options import (
    DataRootOption,
    KindArgument,
    PathsArgument,
    Selection,
    SelectionOption,
    SettingOption,
    TitleOption,
    ToOption,
    WidthOption,
)
from fdg_plugins.cli.plugins import PluginFiles, load_plugins
from fdg_plugins.errors import DataError, FDGError

if TYPE_CHECKING:
    from fdg_plugins.lab.analysis import Run
    from fdg_plugins.lab.analysis.figures import Picture, Request

NUMBERS = "csv"


def plot(
    kind: KindArgument,
    paths: PathsArgument,
    to: ToOption = Path("figures"),
    selection: SelectionOption = Selection.SOURCE_VALIDATION,
    setting: SettingOption = None,
    data_root: DataRootOption = None,
    data: DataOption = None,
    title: TitleOption = None,
    width: WidthOption = 3.3,
    rounds: RoundsOption = None,
    plugin: PluginFiles = None,
) -> None:
    """Make figures of finished runs, with their numbers.

    Reads every results.json below the paths; overlays show one run, and need its models and its data.

    Examples:

      fdg plot convergence sweeps/pacs

      fdg plot sensitivity sweeps/kappa --setting kappa --to figures/kappa

      fdg plot overlays runs/fedavg-drive --data-root /data

      fdg plot all simulator_workspace --data-root /data
    """
    from fdg_plugins.lab.analysis.absences import notes_on_absences
    from fdg_plugins.lab.analysis.figures import Request, kinds_of
    from fdg_plugins.storage import named_path

    load_plugins(plugin)
    root, file = _place_of(data, data_root)
    kinds = kinds_of(kind)
    request = Request(
        selection=selection.value,
        setting=setting,
        data_root=root,
        dataset_file=file,
        cache=named_path("FDG_CACHE", os.environ),
        max_pixels=most_pixels(),
    )
    runs = runs_below(paths, rounds)
    for note in notes_on_absences(runs):
        say(f"Note: {note}", style="yellow", on_stderr=True)
    made = [_make(name, runs, request, _Output(to, title, width), spare=len(kinds) > 1) for name in kinds]
    if not any(made):
        raise DataError(f"these runs allow no figure of the kinds {', '.join(kinds)}.")


def _place_of(data: Path | None, data_root: Path | None) -> tuple[Path | None, Path | None]:
    """Return the data root, and the file about the images if it is elsewhere; ``--data`` wins over FDG_DATA_ROOT."""
    from fdg_plugins.storage import named_path

    if data is None:
        return data_root, named_path("FDG_DATASET_FILE", os.environ)
    from fdg_plugins.data.own_folder import own_data

    own = own_data(data)
    return own.root, own.file


class _Output(NamedTuple):
    """The folder of the files; the headline that replaces that of the figure, if any; the width in inches."""

    to: Path
    title: str | None
    width: float


def _make(kind: str, runs: "Sequence[Run]", request: "Request", output: _Output, *, spare: bool) -> bool:
    """Make the figures of one kind; return whether that went well. ``spare``: report an impossible kind, do not raise.

    It also went well if a sentence says all that a figure would show.
    """
    from fdg_plugins.lab.analysis.figures import NothingToDrawError, make_pictures

    try:
        pictures = make_pictures(kind, runs, request)
    except NothingToDrawError as reason:
        say(f"Note: {reason}", style="yellow", on_stderr=True)
        return True
    except FDGError as error:
        if not spare:
            raise
        say(f"{kind} is left out: {' '.join(str(error).split())}", style="yellow", on_stderr=True)
        return False
    for note in dict.fromkeys(note for picture in pictures for note in picture.notes):
        say(f"Note: {note}", style="yellow", on_stderr=True)
    for picture in pictures:
        _write(picture if output.title is None else replace(picture, title=output.title), output)
    return True


def _write(picture: "Picture", output: _Output) -> None:
    """Write one figure in every format, and its numbers."""
    from fdg_plugins.lab.analysis.figures import render_csv
    from fdg_plugins.lab.analysis.figures.drawing import FORMATS, draw, render

    figure = draw(picture, output.width)
    contents = {form: render(figure, picture, form) for form in FORMATS} | {NUMBERS: render_csv(picture).encode()}
    for suffix, content in contents.items():
        write_output(output.to / f"{picture.name}.{suffix}", content, "--to")
    say(f"{output.to / picture.name}: {', '.join(contents)}")
