# SPDX-License-Identifier: Apache-2.0
"""Small files in the layout of CelebA, made by hand."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from fdg_plugins.data import CELEBA

HEADER = "Bangs Blond_Hair Male Young "
# Name, part, and whether the image shows somebody blond, a man.
FACES = (
    ("000001.jpg", 0, False, False),
    ("000002.jpg", 0, True, False),
    ("000003.jpg", 2, True, True),
    ("000004.jpg", 0, False, True),
    ("000005.jpg", 1, True, False),
    ("000006.jpg", 2, False, True),
    ("000007.jpg", 0, True, True),
    ("000008.jpg", 2, True, False),
    ("000009.jpg", 0, False, False),
    ("000010.jpg", 2, False, False),
)


def sign(value: bool) -> str:
    return "1" if value else "-1"


def attribute_lines(faces: Sequence[tuple[str, int, bool, bool]] = FACES) -> list[str]:
    """Return the lines of the list, with the spaces of the published one: two in front of a 1, one behind the names."""
    rows = [f"{name} -1 {sign(blond):>2} {sign(male):>2}  1" for name, _, blond, male in faces]
    return [f"{len(faces)}", HEADER, *rows]


def part_lines(faces: Sequence[tuple[str, int, bool, bool]] = FACES) -> list[str]:
    return [f"{name} {part}" for name, part, _, _ in faces]


def write_celeba(root: Path) -> Path:
    """Write the two lists and images of plain colours, whose red is their number; return the data set's folder."""
    folder = root / CELEBA.folder
    (folder / CELEBA.image_folder).mkdir(parents=True)
    write_lines(folder / CELEBA.attribute_list, attribute_lines())
    write_lines(folder / CELEBA.part_list, part_lines())
    for number, (name, *_) in enumerate(FACES, 1):
        Image.new("RGB", (18, 22), (20 * number, 90, 60)).save(folder / CELEBA.image_folder / name)
    return folder


def write_lines(file: Path, lines: Sequence[str]) -> None:
    file.write_text("\r\n".join(lines) + "\n", encoding="utf-8")
