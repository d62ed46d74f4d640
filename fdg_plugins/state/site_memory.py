# SPDX-License-Identifier: Apache-2.0
"""The site state of a method: what it keeps at a site between the site's rounds, in the run's folder there.

The last two rounds are kept. If the server went down before it had saved a round and repeats it, the site starts that
round again from its earlier state.
"""

import re
from pathlib import Path

import torch

from fdg_plugins.errors import DataError
from fdg_plugins.state.checked_files import VERSION, load_checked_tensors, save_checked_tensors

MEMORY_VERSION = "2"

_NAME = re.compile(r"fdg_memory_(0|[1-9][0-9]{0,8})\.safetensors")
_KEPT = 2


def read_memory(folder: Path, round_number: int) -> dict[str, torch.Tensor]:
    """Return the state that was kept last before ``round_number``; empty if there is none.

    Raises ``DataError`` naming the file if it is damaged.
    """
    earlier = [number for number in _rounds(folder) if number < round_number]
    if not earlier:
        return {}
    path = _file(folder, earlier[-1])
    tensors, metadata = load_checked_tensors(path, unchecked_version=None)
    if metadata and metadata != {VERSION: MEMORY_VERSION}:
        raise DataError(f"file {path} has version {metadata.get(VERSION)}, expected {MEMORY_VERSION}.")
    return tensors


def write_memory(folder: Path, round_number: int, tensors: dict[str, torch.Tensor]) -> None:
    """Save ``tensors`` as the state after ``round_number``, atomically, and remove that of later rounds.

    Nothing is written if ``tensors`` is empty. Raises ``DataError`` naming a file that cannot be replaced.
    """
    if not tensors:
        return
    save_checked_tensors(_file(folder, round_number), tensors, {VERSION: MEMORY_VERSION})
    rounds = _rounds(folder)
    current = [number for number in rounds if number <= round_number][-_KEPT:]
    for number in set(rounds) - set(current):
        try:
            _file(folder, number).unlink()
        except OSError as error:
            raise DataError(f"file {_file(folder, number)} cannot be removed: {error.strerror}.") from error


def _file(folder: Path, round_number: int) -> Path:
    return folder / f"fdg_memory_{round_number}.safetensors"


def _rounds(folder: Path) -> list[int]:
    """Return the rounds that are kept, in order; other files in the folder are ignored."""
    try:
        found = (_NAME.fullmatch(file.name) for file in folder.iterdir())
        return sorted(int(name[1]) for name in found if name)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"folder {folder} cannot be read: {error.strerror}.") from error
