# SPDX-License-Identifier: Apache-2.0
"""What a method keeps at a site from one of its rounds to the next, in the run's folder there.

The last two are kept: a round that the server repeats, because it went down before it had saved that round, starts
again from what the site knew before it.
"""

from pathlib import Path

import torch

from fdg_plugins.storage import load_tensors, save_tensors

_STEM = "fdg_memory_"
_KEPT = 2


def read_memory(folder: Path, round_number: int) -> dict[str, torch.Tensor]:
    """Return what was kept last in a round before ``round_number``; empty if there was nothing."""
    earlier = [number for number in _rounds(folder) if number < round_number]
    return load_tensors(_file(folder, earlier[-1])) if earlier else {}


def write_memory(folder: Path, round_number: int, tensors: dict[str, torch.Tensor]) -> None:
    """Keep ``tensors`` as those of ``round_number``, atomically, in place of what a later round had left.

    Nothing is written for a method that keeps nothing.
    """
    if not tensors:
        return
    save_tensors(_file(folder, round_number), tensors)
    rounds = _rounds(folder)
    current = [number for number in rounds if number <= round_number][-_KEPT:]
    for number in set(rounds) - set(current):
        _file(folder, number).unlink()


def _file(folder: Path, round_number: int) -> Path:
    return folder / f"{_STEM}{round_number}.safetensors"


def _rounds(folder: Path) -> list[int]:
    numbers = (file.stem.removeprefix(_STEM) for file in folder.glob(f"{_STEM}*.safetensors"))
    return sorted(int(number) for number in numbers if number.isdigit())
