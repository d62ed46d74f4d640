# SPDX-License-Identifier: Apache-2.0
"""Small drawings under the names, in the formats and in the archives in which retinal vessels are published."""

import gzip
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from tests.data.published import write_tar, write_zip

SIZE = (24, 20)
NUMBERS = {"chase_db1": 28, "drive": 40, "hrf": 45, "stare": 20}
"""The number of published pairs by domain."""


def photograph(number: int, form: str, size: tuple[int, int] = SIZE) -> bytes:
    """Return a photograph of noise in the given format of Pillow, another one for each number."""
    generator = np.random.default_rng(number)
    pixels = generator.integers(0, 256, size=(size[1], size[0], 3), dtype=np.uint8)
    return encoded(Image.fromarray(pixels), form)


def annotation(number: int, form: str, mode: str = "L", size: tuple[int, int] = SIZE) -> bytes:
    """Return a mask with a line of 255 on 0 in the given format and mode of Pillow, its row given by the number."""
    pixels = np.zeros((size[1], size[0]), dtype=np.uint8)
    pixels[number % size[1]] = 255
    return encoded(Image.fromarray(pixels).convert(mode), form)


def encoded(image: Image.Image, form: str) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form)
    return stream.getvalue()


def chase() -> dict[str, bytes]:
    files = {}
    for number in range(1, 15):
        for row, side in enumerate("LR"):
            name = f"Image_{number:02d}{side}"
            files[f"{name}.jpg"] = photograph(2 * number + row, "JPEG")
            files[f"{name}_1stHO.png"] = annotation(2 * number + row, "PNG", "1")
            files[f"{name}_2ndHO.png"] = annotation(2 * number + row + 1, "PNG", "1")
    return files


def drive(part: str, *, is_marked: bool = True) -> dict[str, bytes]:
    files = {}
    for number in range(21, 41) if part == "training" else range(1, 21):
        files[f"{part}/images/{number:02d}_{part}.tif"] = photograph(number, "TIFF")
        files[f"{part}/mask/{number:02d}_{part}_mask.gif"] = annotation(0, "GIF")
        if is_marked:
            files[f"{part}/1st_manual/{number:02d}_manual1.gif"] = annotation(number, "GIF")
        if is_marked and part == "test":
            files[f"{part}/2nd_manual/{number:02d}_manual2.gif"] = annotation(number + 1, "GIF")
    return files


def hrf() -> dict[str, bytes]:
    files = {}
    for group in ("dr", "g", "h"):
        for number in range(1, 16):
            name = f"{number:02d}_{group}"
            files[f"images/{name}.{'JPG' if group == 'dr' else 'jpg'}"] = photograph(number, "JPEG")
            files[f"manual1/{name}.tif"] = annotation(number, "TIFF")
            files[f"mask/{name}_mask.tif"] = annotation(0, "TIFF", "RGB")
    return files


def stare() -> tuple[dict[str, bytes], dict[str, bytes], dict[str, bytes]]:
    """Return the content of the archives of images, one of them without label, of the first and second observer."""
    names = [f"im{number:04d}" for number in range(1, 22)]
    images = {f"{name}.ppm.gz": gzip.compress(photograph(row, "PPM")) for row, name in enumerate(names)}
    first = {f"{name}.ah.ppm.gz": gzip.compress(annotation(row, "PPM", "RGB")) for row, name in enumerate(names[:-1])}
    second = {f"{name}.vk.ppm.gz": gzip.compress(annotation(row + 1, "PPM")) for row, name in enumerate(names[:-1])}
    return images, first, second


def write_archives(folder: Path) -> Path:
    """Write the archives of all four groups into a folder, and return it."""
    folder.mkdir()
    write_zip(folder / "CHASEDB1.zip", chase())
    write_zip(folder / "training.zip", drive("training"))
    write_zip(folder / "test.zip", drive("test"))
    write_zip(folder / "all.zip", hrf())
    for name, content in zip(("stare-images", "labels-ah", "labels-vk"), stare(), strict=True):
        write_tar(folder / f"{name}.tar", content)
    return folder


def pixels_of(content: bytes | Path) -> np.ndarray:
    """Return the pixels of an image in RGB."""
    with Image.open(content if isinstance(content, Path) else io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))


def changed(files: Mapping[str, bytes], name: str, content: bytes | None) -> dict[str, bytes]:
    """Return the files with other content for one, or without it."""
    assert name in files
    return {path: old for path, old in {**files, name: content}.items() if old is not None}
