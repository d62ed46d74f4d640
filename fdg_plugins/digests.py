# SPDX-License-Identifier: Apache-2.0
"""The SHA-256 of files, by which a record, the audit and the checks tell one file from another."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal, read in parts; raise ``OSError`` if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_sizes(folder: Path, names: Iterable[str]) -> str:
    """Return the SHA-256 of the sizes in bytes of files below ``folder``, with their names, in any order.

    No file is read, so that a change which keeps a file's size is not seen. A file that cannot be looked at counts.
    """
    lines = sorted(f"{_size_of(folder / name)} {name}" for name in set(names))
    return hashlib.sha256("\0".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
