# SPDX-License-Identifier: Apache-2.0
"""Images in files, each decoded once: their pixels stay in memory while there is room for them.

A loader's forked processes share the memory, so an image decoded by one process is available to all. The memory is
freed when the images are no longer referenced; nothing decoded is written to disk.
"""

import mmap
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fdg_plugins.data.decoding import MOST_PIXELS, open_image, read_image
from fdg_plugins.errors import DataError

CHANNELS = 3


@dataclass(frozen=True)
class _Place:
    """The memory reserved for the pixels of one image, uint8 ``[H, W, 3]``; ``filled``, uint8 ``[1]``, is 1 if set."""

    pixels: np.ndarray
    filled: np.ndarray


@dataclass(frozen=True)
class ImageFiles:
    """Images below ``folder``, of at most ``max_pixels``; caches decoded ones, up to ``memory`` bytes (0: none)."""

    folder: Path
    memory: int = field(default=0, compare=False)
    max_pixels: int = field(default=MOST_PIXELS, compare=False)
    _places: dict[str, _Place | None] = field(default_factory=dict, repr=False, compare=False)

    def reserve(self, files: Iterable[str]) -> None:
        """Reserve memory for the ``files`` that have none yet, in their order, as far as it suffices.

        Reads the header of each file. A file that is not an image gets no memory, and raises only when it is read.
        """
        if not self.memory:
            return
        new = [file for file in dict.fromkeys(files) if file not in self._places]
        places = _new_places(self._fitting(new))
        self._places.update({file: places.get(file) for file in new})

    def _fitting(self, files: Iterable[str]) -> dict[str, tuple[int, int, int]]:
        """Return the shapes of the images for which the free memory suffices, in their order."""
        free = self._free
        shapes: dict[str, tuple[int, int, int]] = {}
        for file in files:
            shape = _shape_of(self.folder / file, self.max_pixels)
            if shape and np.prod(shape) <= free:
                shapes[file] = shape
                free -= int(np.prod(shape))
        return shapes

    @property
    def _free(self) -> int:
        """The bytes of memory that are not reserved."""
        return self.memory - sum(place.pixels.nbytes for place in self._places.values() if place)

    def read(self, file: str) -> np.ndarray:
        """Return the pixels of an image, uint8 ``[H, W, 3]`` in RGB; the caller must not write to them.

        Raises DataError naming the file if it cannot be decoded or has too many pixels.
        """
        place = self._places.get(file)
        if place and place.filled[0]:
            return place.pixels
        pixels = np.asarray(read_image(self.folder / file, self.max_pixels))
        if place and place.pixels.shape == pixels.shape:
            place.pixels[...] = pixels
            place.filled[0] = 1  # last, because another process may be reading
        return pixels

    def __reduce__(self) -> tuple[type["ImageFiles"], tuple[Path, int, int]]:
        """Return the state for another process, without the cached images, which would be copied."""
        return ImageFiles, (self.folder, 0, self.max_pixels)


def _shape_of(path: Path, max_pixels: int) -> tuple[int, int, int] | None:
    try:
        with open_image(path, max_pixels) as image:
            return image.height, image.width, CHANNELS
    except DataError:
        return None


def _new_places(shapes: dict[str, tuple[int, int, int]]) -> dict[str, _Place]:
    """Return memory for images of these shapes in one new block, whose pages are allocated when written to."""
    if not shapes:
        return {}
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    block = np.frombuffer(mmap.mmap(-1, sum(sizes) + len(sizes)), dtype=np.uint8)
    parts = np.split(block[: sum(sizes)], np.cumsum(sizes)[:-1])
    filled = block[sum(sizes) :]
    return {
        file: _Place(part.reshape(shape), filled[row : row + 1])
        for row, ((file, shape), part) in enumerate(zip(shapes.items(), parts, strict=True))
    }
