# SPDX-License-Identifier: Apache-2.0
"""Folders of drawings that stand in for a data set: marked as such, and complete as soon as they have their name."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from fdg_plugins.data.folders import is_file
from fdg_plugins.errors import DataError
from fdg_plugins.storage import write_json

MARKER: str = "STAND-IN.json"
"""The file that marks a folder as STAND-IN, and every run on it: in the data root, and in the data set's folder."""

_NO_PLACE = "it has no data root, and the STAND-IN cannot be written to its cache."


def cache_folder(cache: Path | None) -> Path:
    """Return the folder for drawings: ``cache``, or this user's cache of the package."""
    return platformdirs.user_cache_path("fdg_plugins") if cache is None else Path(cache)


def is_stand_in(data_root: Path, folder: str = "") -> bool:
    """Return whether ``data_root``, or ``folder`` in it, holds drawings of this package rather than the user's data."""
    return any(is_file(place / MARKER) for place in (Path(data_root), Path(data_root) / folder))


def write_markers(root: Path, folder: str, facts: Mapping[str, Any]) -> None:
    """Mark a finished data root as STAND-IN, and ``folder`` in it, which stays marked if it is moved."""
    write_json(root / folder / MARKER, {"stand_in": True, **facts})
    write_json(root / MARKER, {"stand_in": True, **facts})


def write_drawings(root: Path, build: Callable[[Path], None]) -> Path:
    """Return ``root`` after ``build`` has filled it, unless it exists already; safe for concurrent processes.

    Each process draws into its own temporary folder and renames it; one that finishes later discards its folder and
    uses the first one. Raises DataError for a folder that cannot be written, and for one that holds anything else: real
    images and drawings never share a data root.
    """
    with _translated(f"folder {root.parent} cannot hold the stand-in data"):
        if is_stand_in(root):
            return root
        _refuse_occupied(root)
        root.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=root.parent, prefix=f".{root.name}."))
    try:
        with _translated(f"folder {root} cannot be filled with the stand-in data"):
            build(temporary)
            _publish(temporary, root)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return root


@contextmanager
def _translated(problem: str) -> Iterator[None]:
    """Turn an OSError into a DataError of one sentence that begins with ``problem``."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{problem}: {error.strerror}.", public=_NO_PLACE) from error


def _refuse_occupied(root: Path) -> None:
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DataError(
            f"{root} is in the way and is not the stand-in data; expected a new or an empty folder.",
            public=_NO_PLACE,
        )


def _publish(temporary: Path, root: Path) -> None:
    """Rename the finished folder to its final name, unless another process has already published its own."""
    temporary.chmod(0o755)  # mkdtemp makes the folder readable by its owner only
    try:
        temporary.rename(root)
    except OSError as error:
        if not is_stand_in(root):
            if not root.exists():
                raise
            raise DataError(
                f"{root} is in the way and is not the stand-in data: {error.strerror}.", public=_NO_PLACE
            ) from error
