# SPDX-License-Identifier: Apache-2.0
"""Sources of a domain's images: datasets of its samples for training, for evaluation and for reports.

Files are decoded when they are needed or kept in memory, never written to disk; images that are one array are in memory
anyway. ``fdg_plugins.data.images`` decides which samples form a batch, and in which order.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import torch
from torch.nn.functional import interpolate
from torch.utils.data import Dataset

from fdg_plugins.data.augmentation import Epochs, EpochViews, whole_view
from fdg_plugins.data.decoding import MOST_PIXELS, check_image, read_image
from fdg_plugins.data.specs import Sample
from fdg_plugins.errors import DataError

Samples = Sequence[Sample]
Example = tuple[torch.Tensor, torch.Tensor]  # an image and its target

V = TypeVar("V")

Finish = Callable[[V, Sample, int, int], Example]
"""Makes an example of what is read, its sample, the number of the epoch, and the sample's position."""

View = tuple[int, Finish[V], int | None]
"""The size in which files are read, what makes their examples, and the largest batch of an evaluation."""

Purpose = Literal["training", "evaluation", "report"]
ONCE = Epochs(0, ())  # for what has no randomness

SizedSample = tuple[Sample, int]  # an image, and the side of the square to which it is scaled; 0: the size of its file


@dataclass
class ImageDataset(Dataset[Any]):
    """Samples by index, ``times`` times: first all of the first epoch, then all of the second.

    ``load`` makes the example of a sample, the number of the epoch, and the sample's position. ``in_memory``: whether
    batches come from memory, so that processes that read ahead gain nothing. ``largest_batch``: the number of images
    that an evaluation takes at once, whatever batch size it asks for; None: any.
    """

    in_memory: ClassVar[bool] = False

    samples: Sequence[Sample]
    load: Callable[[Sample, int, int], Example]
    times: int = 1
    largest_batch: int | None = None

    def __len__(self) -> int:
        return len(self.samples) * self.times

    def __getitem__(self, index: int) -> Example:
        number, position = divmod(index, len(self.samples))
        return self.load(self.samples[position], number, position)

    def __getitems__(self, indices: list[int]) -> Example | DataError:
        """Return the images and targets of a whole batch, B first, or a DataError as a value.

        An error raised in a worker process would carry the worker's whole traceback as its text.
        """
        try:
            images, targets = zip(*(self[index] for index in indices), strict=True)
        except DataError as error:
            return DataError(str(error), public=error.public)
        return torch.stack(images), torch.stack(targets)


class ImageSource(ABC):
    """The images of a domain, identified by their samples."""

    @abstractmethod
    def dataset(self, samples: Samples, image_size: int, purpose: Purpose, epochs: Epochs = ONCE) -> ImageDataset:
        """Return ``samples`` for a purpose, first all of the first epoch, then all of the second.

        They are augmented for ``training``, and whole for an ``evaluation``, without randomness. A ``report`` of a
        method has them as evaluations do, with the targets of training.
        """

    @abstractmethod
    def check(self, sample: Sample) -> None:
        """Raise DataError if the image cannot be used; read it completely, but keep nothing."""


class FileSource(ImageSource, Generic[V]):
    """Images in files below ``folder``, of at most ``max_pixels`` each; the first are kept up to ``memory`` bytes.

    The forked processes of a loader share what is kept; another process begins without any.
    """

    def __init__(self, folder: Path, memory: int = 0, max_pixels: int = MOST_PIXELS) -> None:
        self.folder = folder
        self.memory = memory
        self.max_pixels = max_pixels
        self._kept: dict[SizedSample, V] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kept": {}, "memory": 0}

    @abstractmethod
    def read(self, key: SizedSample) -> V:
        """Return what is kept of a file; raise DataError, naming it, if it cannot be used."""

    @abstractmethod
    def view(self, image_size: int, purpose: Purpose, epochs: Epochs, count: int) -> View[V]:
        """Return how ``count`` files are read for a purpose."""

    def dataset(self, samples: Samples, image_size: int, purpose: Purpose, epochs: Epochs = ONCE) -> ImageDataset:
        size, finish, largest = self.view(image_size, purpose, epochs, len(samples))
        if self.memory:
            self._keep([key for key in dict.fromkeys((sample, size) for sample in samples) if key not in self._kept])
        return ImageDataset(samples, partial(self._load, size, finish), len(epochs), largest)

    def _keep(self, keys: Sequence[SizedSample]) -> None:
        """Read files up to the first that does not fit; broken ones are left to readers."""
        threads = torch.get_num_threads()  # as many files are read at once, so that few are read in vain
        chunks = (keys[start : start + threads] for start in range(0, len(keys), threads))
        with ThreadPoolExecutor(threads) as pool:
            read = (zip(chunk, pool.map(self._usable, chunk), strict=True) for chunk in chunks)
            for key, value in chain.from_iterable(read):
                if value is None:
                    continue
                if (needed := _bytes_of(value)) > self.memory:
                    break
                self.memory -= needed
                self._kept[key] = value

    def _usable(self, key: SizedSample) -> V | None:
        try:
            return self.read(key)
        except DataError:
            return None

    def _load(self, size: int, finish: Finish[V], sample: Sample, number: int, position: int) -> Example:
        kept = self._kept.get((sample, size))
        return finish(self.read((sample, size)) if kept is None else kept, sample, number, position)


def _bytes_of(value: Any) -> int:
    return sum(one.nbytes for one in (value.values() if isinstance(value, Mapping) else [value]))


class ImageFiles(FileSource[np.ndarray]):
    """Labelled images: datasets have images uint8 ``[3, S, S]`` and labels."""

    def check(self, sample: Sample) -> None:
        check_image(self.folder / sample.file, self.max_pixels)

    def read(self, key: SizedSample) -> np.ndarray:
        """Return an image, uint8 ``[H, W, 3]`` in RGB, or resized, uint8 ``[3, S, S]``."""
        sample, size = key
        pixels = np.asarray(read_image(self.folder / sample.file, self.max_pixels))
        return whole_view(pixels, size) if size else pixels

    def view(self, image_size: int, purpose: Purpose, epochs: Epochs, count: int) -> View[np.ndarray]:
        if purpose == "training":
            return 0, partial(_augmented, EpochViews(image_size, count, epochs)), None
        return image_size, _labelled, None


class AttributeFiles(ImageFiles):
    """Images with attributes, used whole: resized only, as they are in the papers' code.

    Targets are labels ``[B]`` in training and in what methods report, labels and attributes ``[B, 2]`` in evaluations.
    """

    def view(self, image_size: int, purpose: Purpose, epochs: Epochs, count: int) -> View[np.ndarray]:
        return image_size, _with_attribute if purpose == "evaluation" else _labelled, None


def _augmented(views: EpochViews, pixels: np.ndarray, sample: Sample, number: int, position: int) -> Example:
    return _labelled(views(pixels, number, position), sample)


def _labelled(pixels: np.ndarray, sample: Sample, *_: int) -> Example:
    target = torch.tensor(sample.present, dtype=torch.float32) if sample.present else torch.tensor(sample.label)
    return torch.from_numpy(np.ascontiguousarray(pixels)), target


def _with_attribute(pixels: np.ndarray, sample: Sample, *_: int) -> Example:
    return torch.from_numpy(np.ascontiguousarray(pixels)), torch.tensor((sample.label, sample.attribute))


@dataclass(frozen=True, eq=False)
class ImageArray(ImageSource):
    """Images in memory, ``pixels: uint8 [N, S, S]`` if grey, ``[N, 3, S, S]`` in colour; never augmented.

    ``rows`` maps the ``file`` of a sample to its row. Datasets have images float32 ``[C, S, S]`` in [0, 1] and labels.
    """

    pixels: torch.Tensor
    rows: Mapping[str, int]

    def dataset(self, samples: Samples, image_size: int, purpose: Purpose, epochs: Epochs = ONCE) -> ImageDataset:
        return ArrayImages(self, samples, image_size, len(epochs))

    def check(self, sample: Sample) -> None:
        """Do nothing: the images were read as a whole when the domain was opened."""


def joined(sources: Sequence[ImageSource]) -> ImageSource:
    """Return one source for the images of several domains of a data set, whose files have different names."""
    arrays = [one for one in sources if isinstance(one, ImageArray)]
    if not arrays:
        return sources[0]  # files below the folder of the data set, whichever the domain
    starts = np.cumsum([0, *(len(one.pixels) for one in arrays)]).tolist()
    rows = {file: start + row for one, start in zip(arrays, starts, strict=False) for file, row in one.rows.items()}
    return ImageArray(torch.cat([one.pixels for one in arrays]), rows)


class ArrayImages(ImageDataset):
    """Samples of an array, resized only if their size differs; a batch is taken at once."""

    in_memory: ClassVar[bool] = True

    def __init__(self, array: ImageArray, samples: Sequence[Sample], image_size: int, times: int = 1) -> None:
        super().__init__(samples, self._load, times)
        self.pixels = array.pixels
        self.rows = torch.tensor([array.rows[sample.file] for sample in samples], dtype=torch.int64)
        self.labels = torch.tensor([sample.label for sample in samples], dtype=torch.int64)
        self.image_size = image_size

    def _load(self, sample: Sample, number: int, position: int) -> Example:
        images, labels = self.__getitems__([position])
        return images[0], labels[0]

    def __getitems__(self, indices: list[int]) -> Example:
        """Return a whole batch, images ``[B, C, S, S]`` and labels ``[B]``, which needs no collating."""
        chosen = torch.tensor(indices, dtype=torch.int64) % max(len(self.rows), 1)
        images = self.pixels[self.rows[chosen]]
        images = (images if images.dim() == 4 else images.unsqueeze(1)).float().div_(255.0)
        if images.shape[-1] != self.image_size:
            images = interpolate(images, [self.image_size] * 2, mode="bilinear", antialias=True)
        return images, self.labels[chosen]
