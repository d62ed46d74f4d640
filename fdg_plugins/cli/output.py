# SPDX-License-Identifier: Apache-2.0
"""Files that a user asks a command to write: what may be replaced by them, and what not."""

import os
from collections.abc import Iterable
from pathlib import Path

from fdg_plugins.errors import DataError, SettingsError


def check_output(path: Path, option: str, read: Iterable[Path] = ()) -> None:
    """Raise ``SettingsError`` if ``path`` is there and no regular file, or is one of the files in ``read``.

    ``option``: the option that names the file or its folder. A link counts as what it points to, which is written.
    Raises ``DataError`` if this user cannot look at it.
    """
    try:
        came = _obstacle(path, read)
    except OSError as error:
        raise DataError(f"file {path} cannot be written: {error.strerror}.") from error
    if came:
        raise SettingsError(f"{option} is {str(path)!r}, {came}, expected a file that may be written or replaced.")


def _obstacle(path: Path, read: Iterable[Path]) -> str:
    """Return what is at ``path`` that must not be replaced; empty if nothing is."""
    if path.is_dir() or path.name in ("", ".."):
        return "a folder"
    if not path.is_file():
        return "no regular file" if os.path.lexists(path) else ""
    return "one of the files that are read" if any(path.samefile(one) for one in read) else ""


def write_output(path: Path, content: bytes, option: str, read: Iterable[Path] = ()) -> None:
    """Replace ``path`` with ``content`` if :func:`check_output` allows it; raise ``DataError`` if that fails."""
    from fdg_plugins.storage import write_bytes  # not loaded for ``--help``

    check_output(path, option, read)
    write_bytes(path, content)
