# SPDX-License-Identifier: Apache-2.0
"""Data sets whose preparation has not ended: some of their images may be missing, or be replaced at any moment."""

from pathlib import Path

from fdg_plugins.data.folders import is_file
from fdg_plugins.data.specs import KnownSpec
from fdg_plugins.errors import DataError

LOCK = ".fdg_prepare.lock"
"""The file that a preparation holds locked; it stays in the data set's folder."""

MANIFEST = "fdg_manifest.json"
"""The manifest, which a preparation removes before it writes the first image, and writes last."""


def is_unfinished(folder: Path) -> bool:
    """Return whether ``fdg data prepare`` has begun to fill a data set's folder and not ended.

    It is then still running, was interrupted, or did not accept what it found. Images that came there in
    another way have neither file.
    """
    return is_file(folder / LOCK) and not is_file(folder / MANIFEST)


def refuse_unfinished(data_root: Path, spec: KnownSpec) -> None:
    """Raise DataError if the preparation of a data set below ``data_root`` has not ended."""
    folder = data_root / spec.folder
    if is_unfinished(folder):
        raise DataError(
            f"folder {folder} of data set {spec.name} is not complete: fdg data prepare is still filling it, was "
            f"interrupted, or did not accept what it found; fdg data prepare {spec.name} goes on where it stopped, "
            "and --any-counts accepts what is there.",
            public=f"its preparation of data set {spec.name} has not ended.",
        )
