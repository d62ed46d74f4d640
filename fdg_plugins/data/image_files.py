# SPDX-License-Identifier: Apache-2.0
"""Images in files, each decoded once: their pixels stay in memory while there is room; and images in one array.

Of images that are used whole, what stays is the image as resized. A loader's forked processes share the memory, so an
image decoded by one process is available to all. Nothing decoded is written to disk.
"""

import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np
import torch
from torch.nn.functional import interpolate

from fdg_plugins.data.decoding import FORMATS, MOST_PIXELS, check_image, open_image, read_image
from fdg_plugins.data.sources import Epochs, ImageDataset, ImageSource
from fdg_plugins.data.specs import Sample
from fdg_plugins.data.transforms import EpochViews, View, WholeView, checked_size
from fdg_plugins.errors import DataError

CHANNELS = 3

_Key: TypeAlias = str | tuple[str, int]  # a file as it is, or the whole image resized to that many pixels
_K = TypeVar("_K", bound=_Key)


@dataclass(frozen=True)
class _Place:
    """The memory reserved for the pixels of one image, uint8; ``filled``, uint8 ``[1]``, is 1 if they are there."""

    pixels: np.ndarray
    filled: np.ndarray

    def fill(self, pixels: np.ndarray) -> None:
        """Keep ``pixels``, of the same shape."""
        self.pixels[...] = pixels
        self.filled[0] = 1  # last, because another process may be reading


@dataclass(frozen=True)
class ImageFiles(ImageSource):
    """Images below ``folder``, of at most ``max_pixels``; keeps decoded and resized ones, up to ``memory`` bytes."""

    formats: ClassVar[tuple[str, ...]] = FORMATS

    folder: Path
    memory: int = field(default=0, compare=False)
    max_pixels: int = field(default=MOST_PIXELS, compare=False)
    _places: dict[_Key, _Place | None] = field(default_factory=dict, repr=False, compare=False)

    @property
    def location(self) -> str:
        """The folder."""
        return str(self.folder)

    def training(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> "DomainImages":
        """Return the augmented views of each epoch."""
        return DomainImages(self, samples, EpochViews(image_size, len(samples), epochs))

    def evaluation(self, samples: Sequence[Sample], image_size: int) -> "WholeImages":
        """Return the whole images, resized only."""
        return WholeImages(self, samples, image_size)

    def check(self, sample: Sample) -> None:
        """Decode the image."""
        check_image(self.folder / sample.file, self.max_pixels)

    def reserve(self, files: Iterable[str]) -> None:
        """Reserve memory for the ``files`` that have none yet, in their order, as far as it suffices.

        Reads the header of each file. A file that is not an image gets no memory, and raises only when it is read.
        """
        if not self.memory:
            return
        new = [file for file in dict.fromkeys(files) if file not in self._places]
        places = _new_places(self._fitting(new))
        self._places.update({file: places.get(file) for file in new})

    def reserve_whole(self, files: Iterable[str], size: int) -> None:
        """Reserve memory for the whole images of ``files``, resized to ``size`` pixels, as :meth:`reserve` does."""
        shape = (CHANNELS, size, size)
        new = [(file, size) for file in dict.fromkeys(files) if (file, size) not in self._places]
        if not new:  # in every pass but the first
            return
        places = _new_places(dict.fromkeys(new[: self._free // int(np.prod(shape))], shape))
        self._places.update({key: places.get(key) for key in new})

    def _fitting(self, files: Iterable[str]) -> dict[str, tuple[int, int, int]]:
        free = self._free
        shapes: dict[str, tuple[int, int, int]] = {}
        for file in files:
            try:
                with open_image(self.folder / file, self.max_pixels) as image:
                    shape = image.height, image.width, CHANNELS
            except DataError:
                continue
            if np.prod(shape) <= free:
                shapes[file] = shape
                free -= int(np.prod(shape))
        return shapes

    @property
    def _free(self) -> int:
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
            place.fill(pixels)
        return pixels

    def whole(self, file: str, view: WholeView) -> np.ndarray:
        """Return what ``view`` makes of an image, uint8 ``[3, S, S]``; the caller must not write to it.

        Raises DataError as :meth:`read` does.
        """
        place = self._places.get((file, view.image_size))
        if place and place.filled[0]:
            return place.pixels
        image = view(self.read(file), 0)
        if place:
            place.fill(image)
        return image

    def __reduce__(self) -> tuple[type["ImageFiles"], tuple[Path, int, int]]:
        """Return the state for another process, without the cached images, which would be copied."""
        return type(self), (self.folder, 0, self.max_pixels)


class DomainImages(ImageDataset):
    """Samples as ``(image uint8 [3, S, S], label)``: first all through the first view, then all through the second.

    ``views`` may have any length. A view maps the pixels, uint8 ``[H, W, 3]``, and the position ``i`` of a sample to
    the image. Raises DataError, naming the file, if an image cannot be read.
    """

    def __init__(self, images: "ImageFiles", samples: Sequence[Sample], views: "EpochViews | Sequence[View]") -> None:
        self.images = images
        self.samples = tuple(samples)
        self.views = views
        self.reserve()

    def reserve(self) -> None:
        """Reserve memory for what is read."""
        self.images.reserve(sample.file for sample in self.samples)

    def image(self, number: int, position: int) -> np.ndarray:
        """Return the sample at ``position`` through the view of that ``number``, uint8 ``[3, S, S]``."""
        return self.views[number](self.images.read(self.samples[position].file), position)

    def __len__(self) -> int:
        return len(self.samples) * len(self.views)

    def target_of(self, sample: Sample) -> int | tuple[int, ...]:
        """Return the label of a sample."""
        return sample.label

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int | tuple[int, ...]]:
        number, position = divmod(index, len(self.samples))
        image = np.ascontiguousarray(self.image(number, position))
        return torch.from_numpy(image), self.target_of(self.samples[position])

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor] | DataError:
        """Return a whole batch, images ``[B, 3, S, S]`` and labels ``[B]``, or the error as a value."""
        try:
            images, targets = zip(*(self[index] for index in indices), strict=True)
        except DataError as error:
            return DataError(str(error), public=error.public)
        return torch.stack(images), torch.tensor(targets, dtype=torch.int64)


class WholeImages(DomainImages):
    """Whole images, resized only, ``passes`` times: one pass is like another, so each image is resized once."""

    def __init__(self, images: "ImageFiles", samples: Sequence[Sample], image_size: int, passes: int = 1) -> None:
        self.view = WholeView(image_size)
        super().__init__(images, samples, [self.view] * passes)

    def reserve(self) -> None:
        """Reserve memory for the resized images."""
        self.images.reserve_whole((sample.file for sample in self.samples), self.view.image_size)

    def image(self, number: int, position: int) -> np.ndarray:
        """Return the sample at ``position`` as resized, uint8 ``[3, S, S]``."""
        return self.images.whole(self.samples[position].file, self.view)


def _new_places(shapes: Mapping[_K, tuple[int, int, int]]) -> dict[_K, _Place]:
    if not shapes:
        return {}
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    block = np.frombuffer(mmap.mmap(-1, sum(sizes) + len(sizes)), dtype=np.uint8)
    parts = np.split(block[: sum(sizes)], np.cumsum(sizes)[:-1])
    filled = block[sum(sizes) :]
    return {
        key: _Place(part.reshape(shape), filled[row : row + 1])
        for row, ((key, shape), part) in enumerate(zip(shapes.items(), parts, strict=True))
    }


@dataclass(frozen=True, eq=False)
class ImageArray(ImageSource):
    """Images in memory, ``pixels: uint8 [N, S, S]`` if grey, ``[N, 3, S, S]`` in colour.

    ``rows`` maps the ``file`` of a sample to its row.
    """

    pixels: torch.Tensor
    rows: Mapping[str, int]

    def training(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> "ArrayImages":
        """Return the images as they are, once per epoch."""
        return ArrayImages(self, samples, image_size, times=len(epochs))

    def evaluation(self, samples: Sequence[Sample], image_size: int) -> "ArrayImages":
        """Return the images as they are."""
        return ArrayImages(self, samples, image_size)

    def check(self, sample: Sample) -> None:
        """Do nothing: the images were read as a whole when the domain was opened."""


class ArrayImages(ImageDataset):
    """Samples in memory as ``(image float32 [C, S, S] in [0, 1], label)``, resized only if their size differs.

    The whole sequence of samples is repeated ``times`` times.
    """

    in_memory: ClassVar[bool] = True

    def __init__(self, array: "ImageArray", samples: Sequence[Sample], image_size: int, times: int = 1) -> None:
        self.pixels = array.pixels
        self.rows = torch.tensor([array.rows[sample.file] for sample in samples], dtype=torch.int64)
        self.labels = torch.tensor([sample.label for sample in samples], dtype=torch.int64)
        self.image_size = checked_size(image_size)
        self.times = times

    def __len__(self) -> int:
        return len(self.rows) * self.times

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = self.__getitems__([index])
        return images[0], labels[0]

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a whole batch, images ``[B, C, S, S]`` and labels ``[B]``, which needs no collating."""
        chosen = torch.tensor(indices, dtype=torch.int64) % max(len(self.rows), 1)
        images = self.pixels[self.rows[chosen]]
        images = (images if images.dim() == 4 else images.unsqueeze(1)).float().div_(255.0)
        if images.shape[-1] != self.image_size:
            images = interpolate(images, [self.image_size] * 2, mode="bilinear", antialias=True)
        return images, self.labels[chosen]
