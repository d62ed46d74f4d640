# SPDX-License-Identifier: Apache-2.0
"""``--plugin``: a user's own files with methods, networks or data sets, for the commands that use them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

PluginFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="NAME.py",
        help="A file of your own that brings methods, networks or data sets; it is run. May be repeated.",
        show_default=False,
    ),
]


def load_plugins(files: Iterable[Path] | None) -> None:
    """Load the files given by ``--plugin``; raise ``SettingsError`` for one that cannot be loaded."""
    from fdg_plugins.plugins.files import load_file

    for file in files or ():
        load_file(file)
