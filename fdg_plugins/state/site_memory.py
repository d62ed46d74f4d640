# SPDX-License-Identifier: Apache-2.0
"""What a site keeps between rounds, in the run's folder: tensors by name, in one file for each round.

There are three series of such files: what training keeps (a method's memory, personal parameters, momentum), the
metrics of the site's own model, for the filter that reports the gap, and which images finished models have classified
correctly. The last two rounds of each are kept, so that a server which died before it saved a round can repeat it; one
that goes back further is refused. Beside them is the part of the model that no step changes, which the server sends
only once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from fdg_plugins.errors import DataError
from fdg_plugins.storage import load_checked_tensors, save_checked_tensors

VERSION = {"version": "3"}
TRAINED, OWN_MODEL, SCORED = SERIES = ("trained", "own_model", "scored")
FIXED_FILE = "fdg_fixed.safetensors"


class Kept(NamedTuple):
    """What training keeps, each as tensors by name: the method's memory, own parameters and buffers, momentum."""

    memory: Mapping[str, torch.Tensor] = {}
    personal: Mapping[str, torch.Tensor] = {}
    momentum: Mapping[str, torch.Tensor] = {}


def write_kept(folder: Path, round_number: int, kept: Kept) -> None:
    """Save what training keeps as the state after ``round_number``; raise ``DataError`` if that fails."""
    tensors = {f"{part}/{name}": one for part, of in kept._asdict().items() for name, one in of.items()}
    write_round(folder, TRAINED, round_number, tensors)


def read_kept(folder: Path, round_number: int) -> Kept:
    """Return what training kept before ``round_number``; raise ``DataError`` as :func:`read_round`."""
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for name, one in read_round(folder, TRAINED, round_number).items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = one
    return Kept(**parts)


def write_round(folder: Path, series: str, round_number: int, tensors: Mapping[str, torch.Tensor]) -> None:
    """Save ``tensors`` as the state of a series after ``round_number``; keep one earlier state and remove all others.

    Nothing is written for no tensors. Raises ``DataError`` naming a file that cannot be written.
    """
    if not tensors:
        return
    save_checked_tensors(_file(folder, series, round_number), tensors, VERSION)
    rounds = _rounds(folder, series)
    current = [number for number in rounds if number <= round_number][-2:]
    for number in set(rounds) - set(current):
        _file(folder, series, number).unlink()


def read_round(folder: Path, series: str, round_number: int) -> dict[str, torch.Tensor]:
    """Return the latest state of a series from before ``round_number``, counted from 0; empty if there is none.

    Raises ``DataError`` naming the file if it is damaged, and for a round so early that its state has been removed.
    """
    rounds = _rounds(folder, series)
    earlier = [number for number in rounds if number < round_number]
    if not earlier and len(rounds) > 1 and round_number > 0:  # a server repeats one round; this one has lost more
        raise DataError(
            f"folder {folder} holds nothing from before round {round_number + 1}, which the server repeats, but what "
            f"the site kept after rounds {' and '.join(str(number + 1) for number in rounds)}.",
            public=f"what it knew before round {round_number + 1}, to which the server has gone back, is gone.",
        )
    return _load(_file(folder, series, earlier[-1]), VERSION) if earlier else {}


def has_memory(folder: Path) -> bool:
    """Return whether the run's folder holds anything that the site kept of its rounds."""
    return any(_rounds(folder, series) for series in SERIES)


def clear_memory(folder: Path) -> None:
    """Remove whatever the site kept of its rounds and of the model in the run's folder."""
    for path in (
        *(_file(folder, one, number) for one in SERIES for number in _rounds(folder, one)),
        folder / FIXED_FILE,
    ):
        path.unlink(missing_ok=True)


def write_fixed(folder: Path, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Save ``tensors`` as the part of the model that no step changes, replacing an earlier one.

    ``name`` is the server's name for it, which the site does not check against the values: a filter between the two may
    have rounded them. Raises ``DataError`` naming the file if it cannot be written.
    """
    save_checked_tensors(folder / FIXED_FILE, tensors, VERSION | {"id": name})


def read_fixed(folder: Path, name: str) -> dict[str, torch.Tensor]:
    """Return the fixed part that the server calls ``name``; raise ``DataError`` unless it is there and undamaged."""
    try:
        return _load(folder / FIXED_FILE, VERSION | {"id": name})
    except DataError as error:
        public = "it does not hold the model's fixed part, which the server sends again with the next task."
        raise DataError(str(error), public=public) from error


def _load(path: Path, expected: Mapping[str, str]) -> dict[str, torch.Tensor]:
    tensors, metadata = load_checked_tensors(path)
    if metadata != expected:
        raise DataError(field=f"metadata of file {path}", value=metadata, expected=str(expected))
    return tensors


def _file(folder: Path, series: str, round_number: int) -> Path:
    return folder / f"fdg_{series}_{round_number}.safetensors"


def _rounds(folder: Path, series: str) -> list[int]:
    names = (path.stem.rpartition("_")[2] for path in folder.glob(f"fdg_{series}_*.safetensors"))
    return sorted(int(name) for name in names if name.isdecimal())
