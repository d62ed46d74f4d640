# SPDX-License-Identifier: Apache-2.0
"""The damaged images that a site's census left out, so that every later task of the run uses the same split.

The list is kept in the run's folder at the site, because each task may run in its own process and decoding all images
again can take longer than a round. The split's hash, which the census also stores, detects a list of another run.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fdg_plugins.errors import DataError
from fdg_plugins.storage import read_json, write_json

FILE = "fdg_left_out.json"


def write_left_out(folder: Path, files: Iterable[str]) -> None:
    """Save the names of ``files``, readable by the owner only; this replaces an earlier list."""
    write_json(folder / FILE, {"version": 1, "left_out": sorted(files)}, private=True)


def read_left_out(folder: Path) -> frozenset[str]:
    """Return the files that the census left out; empty if there is no list. Raises ``DataError`` for a damaged list."""
    path = folder / FILE
    if not path.exists():
        return frozenset()
    content = read_json(path)
    if not _is_list_of_files(content):
        raise DataError(
            f"file {path} is not the list of left-out images that a census wrote.",
            public="the list of the images that its census left out is damaged.",
        )
    return frozenset(content["left_out"])


def _is_list_of_files(content: Any) -> bool:
    """Return whether the JSON value ``content`` is what :func:`write_left_out` writes."""
    if not isinstance(content, dict) or content.get("version") != 1:
        return False
    files = content.get("left_out")
    return isinstance(files, list) and all(isinstance(file, str) for file in files)
