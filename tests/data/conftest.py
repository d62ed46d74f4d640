# SPDX-License-Identifier: Apache-2.0
"""Small data sets on disk, and a check of what an error tells others."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fdg_plugins.data import PACS
from fdg_plugins.errors import DataError
from tests.data.published import write_idx

EACH = 5  # images of a class of PACS
TRAIN, TEST = 50, 16


def write_pacs(root: Path, content: bytes = b"", domains: tuple[str, ...] = ("photo",), each: int = EACH) -> Path:
    """Write ``each`` files of every class into domains of PACS below ``root``; return it."""
    for domain in domains:
        for name in PACS.classes:
            folder = root / "pacs" / domain / name
            folder.mkdir(parents=True)
            for number in range(each):
                (folder / f"056_{number:04d}.jpg").write_bytes(content)
    return root


def move_out(path: Path, root: Path) -> None:
    path.symlink_to(path.rename(root.parent / "outside"))


@pytest.fixture
def mnist_root(tmp_path: Path) -> Path:
    """A data root with 50 training and 16 test images of noise, which the test may damage."""
    folder = tmp_path / "root" / "mnist" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        write_idx(folder / f"{part}-images-idx3-ubyte", generator.integers(0, 256, (count, 28, 28), dtype=np.uint8))
        write_idx(folder / f"{part}-labels-idx1-ubyte", (np.arange(count) % 10).astype(np.uint8))
    return tmp_path / "root"


@contextmanager
def refused(field: str, *places: object) -> Iterator[None]:
    """Expect a DataError of one line about a field, which names the ``places`` here, and no file to others."""
    with pytest.raises(DataError) as caught:
        yield
    assert str(caught.value.field).startswith(field), caught.value
    assert all(str(place) in str(caught.value) for place in places)
    assert "\n" not in f"{caught.value}{caught.value.public}"
    assert not re.search(r"pytest-of|\.(jpg|png|nii|txt|csv|json)", caught.value.public)
