# SPDX-License-Identifier: Apache-2.0
"""The arguments and options that several commands share, and what becomes of their values."""

import os
import shlex
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from typer import Option

from fdg_plugins.cli.console import say, warn
from fdg_plugins.data import DATASETS
from fdg_plugins.data.own_files import DATASET_FILE, FEWEST_DOMAINS, OwnData, own_data
from fdg_plugins.errors import SettingsError, counted, nearest
from fdg_plugins.lab.sweep.machine import ignored_settings, machine_environment
from fdg_plugins.lab.sweep.plan import read_settings, split_key
from fdg_plugins.plugins.files import bring_factory, load_file
from fdg_plugins.plugins.own_dataset import DatasetRef, shorten_names

ProtocolName = Literal[
    "paper", "quick", "fedomg", "fedomg-fl", "fediir", "fediir-many", "feddim", "feddim-many", "feddg-ga"
]

AT_ONCE = Annotated[int, Field(ge=1, le=10_000)] | None  # sites, or runs, that compute at the same time

PluginFiles = Annotated[
    list[Path] | None,
    Option(
        "--plugin", metavar="NAME.py", help="Your file of methods, networks, tasks or data sets; it is run. Repeatable."
    ),
]
DatasetOption = Annotated[
    str | None,
    Option(
        "--dataset",
        "--data",
        metavar="NAME|DIR|FILE.toml",
        help="A data set by name, your images in DIR/<domain>/<class>/<image>, or the file that describes them.",
        show_default="pacs",
    ),
]
DataRootOption = Annotated[
    Path | None, Option(help="Folder that holds the data sets; default: FDG_DATA_ROOT, else the STAND-IN.")
]
TargetOption = Annotated[str | None, Option(help="The domain to hold out.", show_default="the first of the data set")]
ProtocolOption = Annotated[
    ProtocolName,
    Option(
        metavar="NAME",
        help="paper: as the recipe has it; quick: minutes on a CPU; fedomg, fedomg-fl, fediir, feddim, feddg-ga: that "
        "of the paper's comparisons, fediir-many and feddim-many with many sites. --set overrides it.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="A setting, such as rounds=5 or model=resnet50. May be repeated."),
]
SitesOption = Annotated[
    int | None, Option(metavar="N", help="Source sites in all, which share the domains by their numbers of images.")
]


def read_values(texts: list[str] | None, lists: Collection[str] = ()) -> dict[str, Any]:
    """Return the value of each setting from ``NAME=VALUE``, a list of names for one of ``lists``.

    Raises ``SettingsError`` for another form or several values.
    """
    settings: dict[str, Any] = {}
    for key, values in read_settings(texts or []).items():
        owner, name = split_key(key)
        if owner is not None or (len(values) != 1 and name not in lists):
            raise SettingsError(f"--set {key} has the form of a sweep's, expected NAME=VALUE with one value.")
        if name in lists and isinstance(values[0], list):  # as in a file: ["gap"], or [] for none
            values = (*values[0], *values[1:])
        settings[name] = list(map(str, values)) if name in lists else values[0]
    return settings


def load_plugins(files: Iterable[Path] | None) -> None:
    """Load the files given by ``--plugin``; raise ``SettingsError`` for one that cannot be loaded."""
    for file in files or ():
        load_file(file)


def words_for(folder: Path, plugins: Iterable[str | Path]) -> str:
    """Return the words by which a command is given a folder of runs and their plug-in files."""
    return shlex.join([str(folder), *(text for file in plugins for text in ("--plugin", str(file)))])


@contextmanager
def brought_networks(settings: dict[str, Any]) -> Iterator[list[Path]]:
    """Load the network that ``settings`` name as MODULE:FACTORY; its own name replaces that.

    Yields the plug-in files that were written for it, which exist within the block. The value of ``model`` may be a
    tuple, of a sweep's axis. Raises ``SettingsError`` for a factory that is not there or cannot be loaded.
    """
    given, files = settings.get("model"), []
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
        names = list(given) if isinstance(given, tuple) else [given]
        for place, value in enumerate(names):
            if isinstance(value, str) and ":" in value:  # as no name of a network has
                path, names[place] = bring_factory(value, Path.cwd(), Path(folder))
                files.append(path)
        if files:
            settings["model"] = tuple(names) if isinstance(given, tuple) else names[0]
        yield files


class ChosenData(NamedTuple):
    """What a command's options say about data, None for what they leave out; ``file``: a file not in the data root."""

    dataset: DatasetRef | None
    root: Path | None
    file: Path | None = None

    def environment(self) -> dict[str, str]:
        """Return the environment of the runs: this process's, the data root and the file."""
        own = {} if self.file is None else {"FDG_DATASET_FILE": str(self.file)}
        return machine_environment(os.environ, self.root) | own


def is_own(place: str) -> bool:
    """Return whether ``place`` is a folder or a file; raise ``SettingsError`` if it is no data set's name either."""
    if place.endswith(".toml") or "/" in place:
        return True
    if place in DATASETS.names():
        return False
    if not Path(place).is_dir():
        near = nearest(place, DATASETS.names())
        hint = f"; did you mean {near!r}?" if near else "."
        raise SettingsError(f"there is no folder {place!r} here{hint}", field="dataset", value=place)
    return True


def choose_data(dataset: str | None, data_root: Path | None, fewest: int = FEWEST_DOMAINS) -> ChosenData:
    """Return the data set and data root that the options name; say what a data set of the user's own has.

    Raises ``SettingsError`` for options that exclude each other, ``DataError`` for a folder that is not a data set of
    at least ``fewest`` domains.
    """
    if dataset is None or not is_own(dataset):
        return ChosenData(dataset, data_root)
    if data_root is not None and not dataset.endswith(".toml"):
        raise SettingsError(f"--dataset {dataset} is your folder, which is the data root: no --data-root.")
    own = own_data(dataset, data_root, fewest=fewest)
    introduce(own)
    return ChosenData(own.dataset, own.root, None if own.file == own.root / DATASET_FILE else own.file)


def introduce(own: OwnData) -> None:
    """Say what a data set of the user's own has, and warn of folders of images outside its domains and classes."""
    dataset = own.dataset
    domains = f"{counted(len(dataset.domains), 'domain')} ({shorten_names(dataset.domains)})"
    classes = f"{len(dataset.classes)} classes ({shorten_names(dataset.classes)})"
    lacking = [f"{domain} has no {shorten_names(names)}" for domain, names in own.absent.items()]
    say("; ".join([f"data {dataset.name} in {own.root}: {domains}, {classes}", *lacking]))
    if own.ignored:
        warn(f"not used: {shorten_names(own.ignored)}; no image is where it is expected, <domain>/<class>/<image>.")


def warn_of_unused() -> None:
    """Warn of the variables of the user's shell that would set what only ``--set`` sets."""
    for name in ignored_settings(os.environ):
        warn(f"{name} is not used: the settings of a run come from --set.")
