# SPDX-License-Identifier: Apache-2.0
"""The options that several commands share, and what becomes of their values."""

import os
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fdg_plugins.cli.console import say, warn
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.sweep.values import read_settings, split_key

if TYPE_CHECKING:
    from fdg_plugins.data.own_folder import OwnData
    from fdg_plugins.plugins.own_dataset import DatasetRef


class ProtocolName(StrEnum):
    """The protocol of the runs, before --set."""

    PAPER = "paper"
    QUICK = "quick"
    FEDOMG = "fedomg"
    FEDOMG_FL = "fedomg-fl"
    FEDIIR = "fediir"
    FEDDIM = "feddim"
    FEDDG_GA = "feddg-ga"


PluginFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="NAME.py",
        help="A file of your own that brings methods, networks, tasks or data sets; it is run. May be repeated.",
        show_default=False,
    ),
]
DatasetOption = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        "--data",
        metavar="NAME|DIR|FILE.toml",
        help="A data set by name, images of your own in DIR/<domain>/<class>/<image>, or the file that describes them.",
        show_default="pacs",
    ),
]
DataRootOption = Annotated[
    Path | None,
    typer.Option(help="Folder that holds the data sets; default: FDG_DATA_ROOT, else the STAND-IN."),
]
TargetOption = Annotated[
    str | None, typer.Option(help="The domain to hold out.", show_default="the first of the data set")
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
        help="A setting of protocol or method, such as rounds=5 or model=resnet50. May be repeated.",
        show_default=False,
    ),
]


def read_values(texts: list[str], lists: Collection[str] = ()) -> dict[str, Any]:
    """Return the value of each setting from ``NAME=VALUE``, a list of names for one of ``lists``.

    Raises ``SettingsError`` for another form or several values.
    """
    settings: dict[str, Any] = {}
    for key, values in read_settings(texts).items():
        owner, name = split_key(key)
        if owner is not None or (len(values) != 1 and name not in lists):
            raise SettingsError(f"--set {key} has the form of a sweep's, expected NAME=VALUE with one value.")
        settings[name] = list(map(str, values)) if name in lists else values[0]
    return settings


def load_plugins(files: Iterable[Path] | None) -> None:
    """Load the files given by ``--plugin``; raise ``SettingsError`` for one that cannot be loaded, or a name twice."""
    from fdg_plugins.plugins.files import check_names_differ, load_file

    check_names_differ(files or ())
    for file in files or ():
        load_file(file)


def plugin_words(files: Iterable[str | Path]) -> list[str]:
    """Return the words by which a command is given plug-in files."""
    return [text for file in files for text in ("--plugin", str(file))]


@contextmanager
def brought_networks(settings: dict[str, Any]) -> Iterator[list[Path]]:
    """Load the network that ``settings`` name as MODULE:FACTORY; its own name replaces that.

    Yields the plug-in files that were written for it, which exist within the block. The value of ``model`` may be a
    tuple, of a sweep's axis. Raises ``SettingsError`` for a factory that is not there or cannot be loaded.
    """
    from fdg_plugins.plugins.factories import bring_factory, is_factory

    files: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:

        def named(value: Any) -> Any:
            if not (isinstance(value, str) and is_factory(value)):
                return value
            brought = bring_factory(value, Path.cwd(), Path(folder))
            files.append(brought.path)
            return brought.network

        if "model" in settings:
            given = settings["model"]
            settings["model"] = tuple(map(named, given)) if isinstance(given, tuple) else named(given)
        yield files


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


def choose_data(dataset: str | None, data_root: Path | None) -> ChosenData:
    """Return the data set and data root that the options name; say what a data set of the user's own has.

    ``dataset`` may also be a description in JSON, as a sweep gives it to its runs. Raises ``SettingsError`` for options
    that exclude each other, ``DataError`` for a folder that is not a data set.
    """
    if dataset is not None and dataset.startswith("{"):
        from fdg_plugins.plugins.own_dataset import read_own_dataset

        return ChosenData(read_own_dataset(dataset, "--dataset"), data_root)
    if not dataset or not is_own(dataset):
        return ChosenData(dataset, data_root)
    from fdg_plugins.data.own_folder import own_data

    if data_root is not None and not dataset.endswith(".toml"):
        raise SettingsError(f"--dataset {dataset} is a folder of your own, which is the data root: no --data-root.")
    own = own_data(dataset, data_root)
    introduce(own)
    return ChosenData(own.dataset, own.root, None if own.file_is_found else own.file)


def introduce(own: "OwnData") -> None:
    """Say what a data set of the user's own has, and warn of folders of images outside its domains and classes."""
    from fdg_plugins.plugins.own_dataset import shorten_names

    dataset = own.dataset
    domains = f"{len(dataset.domains)} domains ({shorten_names(dataset.domains)})"
    classes = f"{len(dataset.classes)} classes ({shorten_names(dataset.classes)})"
    lacking = [f"{domain} has no {shorten_names(names)}" for domain, names in own.absent.items()]
    say("; ".join([f"data {dataset.name} in {own.root}: {domains}, {classes}", *lacking]))
    if own.ignored:
        warn(f"not used: {shorten_names(own.ignored)}; no image is where it is expected, <domain>/<class>/<image>.")


def most_pixels() -> int:
    """Return the pixels of the largest image that a site opens on this machine, by ``FDG_MAX_IMAGE_PIXELS``."""
    from fdg_plugins.settings.site_config import read_site_config

    return read_site_config("of this machine", None, os.environ).max_image_pixels
