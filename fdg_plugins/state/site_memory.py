# SPDX-License-Identifier: Apache-2.0
"""The state that a site keeps between rounds, in the run's folder: a method's memory, personal parameters, momentum.

The last two rounds are kept. If the server died before it saved a round and repeats that round, the site starts it
again from its earlier state; a server that goes back further is refused. The filter that reports the gap keeps a file
of its own beside them.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from fdg_plugins.errors import DataError
from fdg_plugins.state.checked_files import VERSION, load_checked_tensors, save_checked_tensors
from fdg_plugins.storage import put_in_place

MEMORY_VERSION = "2"

MEMORY, PERSONAL, MOMENTUM = KINDS = ("memory", "personal", "momentum")

GAP_FILE = "fdg_gap.json"
"""What the filter that reports the gap keeps of the site's own models (:mod:`fdg_plugins.filters.gap`)."""

FIXED_FILE = "fdg_fixed.safetensors"
"""The part of the model that the server sends once (:mod:`fdg_plugins.state.fixed_part`); not a memory of rounds."""

_NAMES = {kind: re.compile(rf"fdg_{kind}_(0|[1-9][0-9]{{0,8}})\.safetensors") for kind in KINDS}
_KEPT = 2


class Kept(NamedTuple):
    """What a site keeps, each as tensors by name: the method's memory, its own parameters and buffers, its momentum."""

    memory: Mapping[str, torch.Tensor] = {}
    personal: Mapping[str, torch.Tensor] = {}
    momentum: Mapping[str, torch.Tensor] = {}


def has_memory(folder: Path) -> bool:
    """Return whether the run's folder holds anything that the site kept of its rounds.

    Raises ``DataError`` if the folder cannot be read.
    """
    return any(_rounds(folder, kind) for kind in KINDS) or (folder / GAP_FILE).exists()


def clear_memory(folder: Path) -> None:
    """Remove whatever the site kept of its rounds and of the model in the run's folder.

    Raises ``DataError`` naming a file that cannot be removed.
    """
    for kind in KINDS:
        for number in _rounds(folder, kind):
            _remove(_file(folder, number, kind))
    for other in (folder / GAP_FILE, folder / FIXED_FILE, *(_draft(folder, kind) for kind in KINDS)):
        if other.exists():
            _remove(other)


def read_memory(folder: Path, round_number: int, kind: str = MEMORY) -> dict[str, torch.Tensor]:
    """Return the latest state from before ``round_number``, counted from 0; empty if there is none.

    Raises ``DataError`` naming the file if it is damaged, and for a round so early that its state has been removed.
    """
    latest = latest_before(round_number, _rounds(folder, kind), f"folder {folder}")
    return {} if latest is None else _load(_file(folder, latest, kind))


def latest_before(round_number: int, rounds: Iterable[int], holder: str) -> int | None:
    """Return the last of the ``rounds`` after which something is kept before ``round_number``; None if there is none.

    Raises ``DataError``, naming the ``holder``, for a round so early that what was kept before it has been removed.
    """
    kept = sorted(rounds)
    earlier = [number for number in kept if number < round_number]
    if not earlier and len(kept) >= _KEPT and round_number > 0:  # a server repeats one round; this one has lost more
        raise DataError(
            f"{holder} holds nothing from before round {round_number + 1}, which the server repeats, but what the site "
            f"kept after rounds {' and '.join(str(number + 1) for number in kept)}.",
            public=f"what it knew before round {round_number + 1}, to which the server has gone back, is gone.",
        )
    return earlier[-1] if earlier else None


def _load(path: Path) -> dict[str, torch.Tensor]:
    """Return the state in a file; raise ``DataError`` if it is damaged or of another version."""
    tensors, metadata = load_checked_tensors(path)
    if metadata != {VERSION: MEMORY_VERSION}:
        raise DataError(f"file {path} has version {metadata.get(VERSION)}, expected {MEMORY_VERSION}.")
    return tensors


def write_kept(folder: Path, round_number: int, kept: Kept) -> None:
    """Save what a site keeps as the state after ``round_number``; keep one earlier state and remove all others.

    Its kinds belong together, so all of them are written before the first has its name: a round whose state does not
    fit on the disk leaves that of the round before as it was. An empty kind is not written. Raises ``DataError`` naming
    a file that cannot be written or removed.
    """
    present = {kind: tensors for kind, tensors in zip(KINDS, kept, strict=True) if tensors}
    for kind, tensors in present.items():
        save_checked_tensors(_draft(folder, kind), tensors, {VERSION: MEMORY_VERSION})
    put_in_place({_draft(folder, kind): _file(folder, round_number, kind) for kind in present})
    for kind in present:
        rounds = _rounds(folder, kind)
        current = [number for number in rounds if number <= round_number][-_KEPT:]
        for number in set(rounds) - set(current):
            _remove(_file(folder, number, kind))


def _draft(folder: Path, kind: str) -> Path:
    return folder / f"fdg_{kind}_next.safetensors"


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise DataError(f"file {path} cannot be removed: {error.strerror}.") from error


def _file(folder: Path, round_number: int, kind: str) -> Path:
    return folder / f"fdg_{kind}_{round_number}.safetensors"


def _rounds(folder: Path, kind: str) -> list[int]:
    """Return the stored rounds in ascending order; other files in the folder are ignored."""
    try:
        found = (_NAMES[kind].fullmatch(file.name) for file in folder.iterdir())
        return sorted(int(name[1]) for name in found if name)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"folder {folder} cannot be read: {error.strerror}.") from error
