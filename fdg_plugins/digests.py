# SPDX-License-Identifier: Apache-2.0
"""The SHA-256 of files, by which a record, the audit and the checks tell one file from another."""

import hashlib
from pathlib import Path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal, read in parts; raise ``OSError`` if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
