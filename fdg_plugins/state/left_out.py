# SPDX-License-Identifier: Apache-2.0
"""The images that a site's census left out because they are damaged: every later task of the run makes the same split.

Kept in the run's folder at the site, for each task may have a process of its own, and decoding all images again would
take longer than many a round. The hash of the split, which the census keeps as well, shows a list that is not its own.
"""

from collections.abc import Iterable
from pathlib import Path

from fdg_plugins.errors import DataError
from fdg_plugins.storage import read_json, write_json

FILE = "fdg_left_out.json"


def write_left_out(folder: Path, files: Iterable[str]) -> None:
    """Keep the names of ``files``, readable for their owner alone; a list that was there is replaced."""
    write_json(folder / FILE, {"version": 1, "left_out": sorted(files)}, private=True)


def read_left_out(folder: Path) -> frozenset[str]:
    """Return what the census left out; nothing where it left no list. Raises ``DataError`` for another content."""
    path = folder / FILE
    if not path.exists():
        return frozenset()
    content = read_json(path)
    files = content.get("left_out") if isinstance(content, dict) and content.get("version") == 1 else None
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise DataError(
            f"file {path} is not the list of left-out images that a census wrote.",
            public="the list of the images that its census left out is damaged.",
        )
    return frozenset(files)
