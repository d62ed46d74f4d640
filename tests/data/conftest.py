# SPDX-License-Identifier: Apache-2.0
"""Small data sets on disk, and a check of what an error tells others."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fdg_plugins.data import PACS
from fdg_plugins.errors import DataError

EACH = 5  # images of a class of PACS


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


@contextmanager
def refused(field: str, *places: object) -> Iterator[None]:
    """Expect a DataError of one line about a field, which names the ``places`` here, and no file to others."""
    with pytest.raises(DataError) as caught:
        yield
    assert str(caught.value.field).startswith(field), caught.value
    assert all(str(place) in str(caught.value) for place in places)
    assert "\n" not in f"{caught.value}{caught.value.public}"
    assert not re.search(r"pytest-of|\.(jpg|png|nii|txt|csv|json)", caught.value.public)
