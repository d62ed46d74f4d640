# SPDX-License-Identifier: Apache-2.0
"""Folders and lists below a data root: what lies in them, and that no link in it leads out of the root."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from fdg_plugins.data.specs import IMAGE_SUFFIXES, KnownSpec
from fdg_plugins.errors import DataError, visible

LOCK = ".fdg_prepare.lock"  # the file that a preparation makes first; it stays in the data set's folder
MANIFEST = "fdg_manifest.json"  # a preparation removes it before it writes the first image, and writes it last
PARTS = ("images", "masks")  # the folders of a domain with masks
OF_SYSTEMS = frozenset({"thumbs.db", "desktop.ini"})  # files in folders of images of which nobody needs to hear

is_folder = os.path.isdir  # unlike Path's, these raise for no name
is_file = os.path.isfile

# Control characters and line ends, which could forge lines of logs and lists, and bytes that are not UTF-8.
_UNUSABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")


def is_unfinished(folder: Path) -> bool:
    """Return whether ``fdg data prepare`` has begun to fill a data set's folder and not ended."""
    return is_file(folder / LOCK) and not is_file(folder / MANIFEST)


def leads_outside(root: Path, path: Path) -> bool:
    """Return whether a path, after resolving links, lies outside ``root``, a resolved folder, or forms a cycle."""
    try:
        resolved = path.resolve()
    except (OSError, RuntimeError):  # a cycle, up to Python 3.12
        return True
    return resolved.is_symlink() or not resolved.is_relative_to(root)


def refuse_outside(root: Path, path: Path) -> None:
    """Raise DataError for a path that, after resolving links, leaves the data root or forms a cycle."""
    if leads_outside(root, path):
        public = "a link leads out of its data root."
        raise DataError(field="link", value=path, expected=f"one to a place below {root}", public=public)


def existing_root(data_root: Path, spec: KnownSpec, domain: str = "") -> Path:
    """Return the resolved data root; raise DataError unless the data set's folder, and the domain's, is there."""
    root = data_root.resolve()
    for folder, what in (
        (root / spec.folder, f"data set {spec.name!r} is not in its data root."),
        (root / spec.folder / domain, f"domain {domain!r} of data set {spec.name!r} is not in its data root."),
    ):
        if not is_folder(folder):
            layout = "/".join(filter(None, ("<data root>", spec.folder, "<domain>", spec.layout)))
            hint = f"; did you mean {root.parent}?" if root.name == spec.folder else ""
            raise DataError(field="folder", value=folder, expected=f"one in the layout {layout}{hint}", public=what)
        refuse_outside(root, folder)
    return root


def names_in(folder: Path) -> list[str]:
    """Return the names of what is in a folder, except what is hidden; raise DataError if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"folder {folder} cannot be listed: {error.strerror}.", field="folder") from error


def files_in(root: Path, folder: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> tuple[list[str], list[str]]:
    """Return the names of the files with one of the ``suffixes`` in a folder, sorted, and those of all else in it.

    Hidden files are neither. Raises DataError for names that :func:`check_names` refuses and links out of ``root``.
    """
    refuse_outside(root, folder)
    names = sorted(names_in(folder))
    found = [name for name in names if name.lower().endswith(suffixes)]
    check_names(folder, found)
    for path in (folder / name for name in found):
        if path.is_symlink():
            refuse_outside(root, path)
    files = [name for name in found if is_file(folder / name)]
    return files, sorted({*names} - {*files})


def check_names(folder: Path, names: Iterable[str]) -> None:
    """Raise DataError for names of files that are not UTF-8 or have control characters."""
    if unusable := sorted(name for name in names if _UNUSABLE.search(name)):
        expected = "UTF-8 without control characters"
        raise DataError(field=f"a name in {folder}", value=visible(unusable[0]), expected=expected)


def has_image(folder: Path) -> bool:
    """Return whether a file named like an image is directly in the folder."""
    return is_folder(folder) and any(name.lower().endswith(IMAGE_SUFFIXES) for name in names_in(folder))


def read_lines(root: Path, path: Path) -> list[tuple[int, str]]:
    """Return number and content of the lines of a list, without blank ones."""
    refuse_outside(root, path)
    try:
        if not is_file(path):  # a named pipe would never end
            raise FileNotFoundError(path)
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"list {path} cannot be read as text ({type(error).__name__}).", field="list") from error
    return [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
