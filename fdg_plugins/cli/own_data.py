# SPDX-License-Identifier: Apache-2.0
"""``--dataset``, ``--data-root`` and ``--data``: the images, for the commands that use some."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.errors import SettingsError
from fdg_plugins.naming import nearest

if TYPE_CHECKING:
    from collections.abc import Collection

    from fdg_plugins.data.own_files import FileRules
    from fdg_plugins.data.own_folder import OwnData
    from fdg_plugins.plugins.own_dataset import DatasetRef

DatasetOption = Annotated[
    str | None, typer.Option(help="Data set, by name, or a file that describes yours.", show_default="pacs")
]
DataRootOption = Annotated[
    Path | None,
    typer.Option(help="Folder that holds the data sets; default: FDG_DATA_ROOT, else the STAND-IN."),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR|FILE.toml",
        help="Images of your own, DIR/<domain>/<class>/<image>, or the file that describes them.",
        show_default=False,
    ),
]


class ChosenData(NamedTuple):
    """What a command's options say about data: the data set and the data root, None if they say nothing.

    ``file`` is the ``dataset.toml`` of a data set of the user's own, if it is not in the data root.
    """

    dataset: "DatasetRef | None"
    root: Path | None
    file: Path | None = None

    @property
    def variables(self) -> dict[str, str]:
        """The variables that tell the file to the processes of a run, beside the data root."""
        return {} if self.file is None else {"FDG_DATASET_FILE": str(self.file)}


def is_own(place: str) -> bool:
    """Return whether ``place`` is a folder or a file rather than the name of a data set of the catalogue."""
    from fdg_plugins.data.catalogue import DATASETS

    return place.endswith(".toml") or "/" in place or (place not in DATASETS.names() and Path(place).is_dir())


def choose_data(data: Path | None, dataset: str | None, data_root: Path | None) -> ChosenData:
    """Return the data set and data root that the options name; say what a data set of the user's own has.

    Raises ``SettingsError`` for options that exclude each other, ``DataError`` for a folder that is not a data set.
    """
    if data is None and not (dataset or "").endswith((".toml", "}")):
        return ChosenData(dataset, data_root)
    if data is not None and data_root is not None:
        raise SettingsError(
            "--data and --data-root exclude each other: the folder of your own images is the data root."
        )
    if dataset is not None and dataset.startswith("{"):
        return ChosenData(_described(dataset), data_root)
    own = _own_data(data, dataset, data_root)
    introduce(own)
    return ChosenData(own.dataset, own.root, None if own.file_is_found else own.file)


def _described(text: str) -> "DatasetRef":
    """Return the data set that a program describes in JSON, as a sweep does for its runs."""
    from fdg_plugins.plugins.own_dataset import read_own_dataset

    return read_own_dataset(text, "--dataset")


def _own_data(data: Path | None, dataset: str | None, data_root: Path | None) -> "OwnData":
    from fdg_plugins.data.own_folder import own_data

    if dataset is None:
        return own_data(str(data))
    if not dataset.endswith(".toml"):
        raise SettingsError(
            f"--data and --dataset {dataset} exclude each other: --dataset takes a file such as mydata.toml with it."
        )
    return own_data(dataset, data or data_root)


def introduce(own: "OwnData") -> None:
    """Say what a data set of the user's own has, and warn of folders of images outside its domains and classes."""
    from fdg_plugins.plugins.own_dataset import shorten_names

    say(summary(own))
    if own.file is None:
        classes = {path.name for name in own.dataset.domains for path in (own.root / name).iterdir() if path.is_dir()}
        if emptied := sorted(name for name in classes - {*own.dataset.classes} if not name.startswith(".")):
            say(f"Warning: no image in any folder {shorten_names(emptied)}, so it is no class.", "yellow", True)
    if own.ignored:
        say(
            f"Warning: not used: {shorten_names(own.ignored)}; no image is where it is expected, "
            "<domain>/<class>/<image>, with a suffix that is read.",
            style="yellow",
            on_stderr=True,
        )


def warn_of_idle(rules: "FileRules", base: Path) -> None:
    """Warn of patterns of ``exclude`` that match nothing in the domains, which were listed, nor one of these."""
    from fdg_plugins.plugins.own_dataset import shorten_names

    for path in base.iterdir():
        if path.is_dir():
            rules.excludes(f"{path.name}/")
    if rules.idle:
        names = shorten_names(rules.idle)
        say(
            f"Warning: exclude names {names}, which no file matches; expected <domain>/<class>/<image>.", "yellow", True
        )


def warn_of_absent(domains: "Collection[str]", found: "Collection[str]", base: Path) -> None:
    """Warn of the ``domains`` of a data set that are not among those found; name similar folders in ``base``."""
    others = [path.name for path in base.iterdir() if path.is_dir() and path.name not in domains]
    near = {name: nearest(name, others) for name in domains if name not in found}
    if near:
        named = ", ".join(name if other is None else f"{name} ({other!r} is there)" for name, other in near.items())
        say(f"Warning: no folder for {named}; a run on this machine needs every domain.", "yellow", True)


def most_pixels() -> int:
    """Return the pixels of the largest image that a site opens on this machine, by ``FDG_MAX_IMAGE_PIXELS``."""
    from fdg_plugins.settings.site_config import read_site_config

    return read_site_config("of this machine", None, os.environ).max_image_pixels


def summary(own: "OwnData") -> str:
    """Return a line on a data set of the user's own: its place, domains and classes, and what is absent where."""
    from fdg_plugins.plugins.own_dataset import shorten_names

    dataset = own.dataset
    lacking = [f"{domain} has no {shorten_names(names)}" for domain, names in own.absent.items()]
    domains = f"{len(dataset.domains)} domains ({shorten_names(dataset.domains)})"
    classes = f"{len(dataset.classes)} classes ({shorten_names(dataset.classes)})"
    return f"data {dataset.name} in {own.root}: {domains}, {classes}{'; ' if lacking else ''}{', '.join(lacking)}"
