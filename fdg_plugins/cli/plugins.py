# SPDX-License-Identifier: Apache-2.0
"""``--plugin`` and ``--model``: a user's own methods, networks or data sets, for the commands that use them."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from fdg_plugins.errors import SettingsError

PluginFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="NAME.py",
        help="A file of your own that brings methods, networks, tasks or data sets; it is run. May be repeated.",
        show_default=False,
    ),
]

ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Network, by name, or MODULE:FACTORY, a function or class of your own that returns an nn.Module: "
        "my_net:MyNet, my_net.py:build, timm.models:resnet10t.",
        show_default="that of the data set",
    ),
]


def plugin_words(files: Iterable[str | Path]) -> list[str]:
    """Return the words by which a command is given plug-in files."""
    return [text for file in files for text in ("--plugin", str(file))]


class ChosenModel(NamedTuple):
    """The network given by ``--model``: its name (None: none given), and the plug-in file that was written for it."""

    name: str | None = None
    file: Path | None = None

    @property
    def files(self) -> list[Path]:
        """The plug-in files that the network needs: the written one, if there is one."""
        return [] if self.file is None else [self.file]

    def kept_in(self, folder: Path) -> list[Path]:
        """Return where the job in a run's ``folder`` has copies of these files."""
        return [folder / "job" / "app_server" / "custom" / file.name for file in self.files]

    def added_to(self, settings: Mapping[str, Any], *, as_axis: bool = False) -> dict[str, Any]:
        """Return ``settings`` with the network, of a sweep (``as_axis``) as an axis of one value.

        Raises ``SettingsError`` if they name one too.
        """
        if self.name is None:
            return dict(settings)
        if "model" in settings:
            raise SettingsError("--set names 'model', and so does --model, expected one of them.")
        return {**settings, "model": (self.name,) if as_axis else self.name}


@contextmanager
def chosen_model(text: str | None) -> Iterator[ChosenModel]:
    """Load the network given by ``--model``; a file that was written for it exists within the block.

    Raises ``SettingsError`` for a factory that is not there or cannot be loaded.
    """
    from fdg_plugins.plugins.factories import bring_factory, is_factory

    if text is None or not is_factory(text):
        yield ChosenModel(text)
        return
    with tempfile.TemporaryDirectory(prefix="fdg-") as folder:
        brought = bring_factory(text, Path.cwd(), Path(folder))
        yield ChosenModel(brought.network, brought.path)


def load_plugins(files: Iterable[Path] | None) -> None:
    """Load the files given by ``--plugin``; raise ``SettingsError`` for one that cannot be loaded, or a name twice."""
    from fdg_plugins.plugins.files import check_names_differ, load_file

    check_names_differ(files or ())
    for file in files or ():
        load_file(file)
