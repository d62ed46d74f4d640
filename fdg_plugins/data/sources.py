# SPDX-License-Identifier: Apache-2.0
"""What a source of images provides: datasets of a domain's samples, for training, for evaluation and for reports.

``fdg_plugins.data.images`` decides which samples form a batch, and in which order.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch.utils.data import Dataset

from fdg_plugins.data.augmentation import USUAL, AugmentationRanges
from fdg_plugins.data.specs import Sample
from fdg_plugins.errors import DataError

Scope = tuple[str | int, ...]
Load = Callable[[Sample, int, int], tuple[torch.Tensor, torch.Tensor]]
"""From a sample, the number of the epoch and the sample's position to image and target."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True)
class Epochs:
    """The occasions on which all samples are augmented anew; their draws depend on ``seed`` and the scope only.

    ``count`` epochs, whose numbers end their scopes; None: a single one, whose scope is ``scope`` itself. ``ranges``:
    how far views of photographs differ from them.
    """

    seed: int
    scope: Scope
    count: int | None = None
    ranges: AugmentationRanges = USUAL

    def __len__(self) -> int:
        return 1 if self.count is None else self.count

    def scope_of(self, number: int) -> Scope:
        """Return the scope of epoch ``number``, counted from 0."""
        return self.scope if self.count is None else (*self.scope, number)


class ImageDataset(Dataset[Any]):
    """Samples by index, ``times`` times: first all of the first epoch, then all of the second.

    ``in_memory``: whether batches come from memory, so that processes that read ahead gain nothing. ``largest_batch``:
    the number of images that an evaluation takes at once, whatever batch size it asks for; None: any.
    """

    in_memory: ClassVar[bool] = False

    def __init__(self, samples: Sequence[Sample], load: Load, times: int = 1, largest_batch: int | None = None) -> None:
        self.samples = tuple(samples)
        self.load = load
        self.times = times
        self.largest_batch = largest_batch

    def __len__(self) -> int:
        return len(self.samples) * self.times

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        number, position = divmod(index, len(self.samples))
        return self.load(self.samples[position], number, position)

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor] | DataError:
        """Return the images and targets of a whole batch, B first, or a DataError as a value.

        An error raised in a worker process would carry the worker's whole traceback as its text.
        """
        try:
            images, targets = zip(*(self[index] for index in indices), strict=True)
        except DataError as error:
            return DataError(str(error), public=error.public)
        return torch.stack(images), torch.stack(targets)


class ImageSource(ABC):
    """The images of a domain, identified by their samples.

    ``formats``: those that its files may have. ``reports_differ``: whether :meth:`reported` differs from
    :meth:`evaluation`, in images or in targets. ``location``: where the images are, for the site's own log.
    """

    formats: ClassVar[tuple[str, ...]] = ()
    reports_differ: bool = False
    location: str = ""

    @abstractmethod
    def training(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> ImageDataset:
        """Return the augmented ``samples``, first all of the first epoch, then all of the second."""

    @abstractmethod
    def evaluation(self, samples: Sequence[Sample], image_size: int) -> ImageDataset:
        """Return the whole images of ``samples``, without randomness."""

    def reported(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> ImageDataset:
        """Return ``samples`` as methods report on them: as evaluated, unless these are larger than in training.

        Targets are those of :meth:`training`.
        """
        return self.evaluation(samples, image_size)

    @abstractmethod
    def check(self, sample: Sample) -> None:
        """Raise DataError if the image cannot be used; read it completely, but keep nothing."""

    def spacing(self, sample: Sample, image_size: int) -> tuple[float, ...] | None:
        """Return the distance of neighbouring pixels in millimetres, one per axis, as evaluated; None if unknown."""
        return None

    def pixel_sides(self, sample: Sample, image_size: int) -> tuple[float, ...]:
        """Return the sides of a pixel along each axis, as evaluated, in a unit of the image's own."""
        return (1.0, 1.0)


class Kept(Generic[K, V]):
    """Values that are made once and stay in memory: the first that are asked for, as far as ``memory`` bytes suffice.

    The forked processes of a loader share them; another process begins without any.
    """

    def __init__(self, memory: int = 0) -> None:
        self.memory = memory
        self._values: dict[K, V] = {}

    def fill(self, keys: Iterable[K], bytes_of: Callable[[K], int], make: Callable[[K], V]) -> None:
        """Make the values that are not there, up to the first that does not fit; broken files are left to readers."""
        chosen = []
        for key in (key for key in dict.fromkeys(keys if self.memory else ()) if key not in self._values):
            try:
                needed = bytes_of(key)
            except DataError:
                continue
            if needed > self.memory:
                break
            self.memory -= needed
            chosen.append(key)
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            self._values.update(zip(chosen, pool.map(make, chosen), strict=True))

    def get(self, key: K, make: Callable[[K], V]) -> V:
        """Return a value, made now if it is not kept; it is not to be changed in place."""
        found = self._values.get(key)
        return make(key) if found is None else found

    def __reduce__(self) -> tuple[type["Kept[K, V]"], tuple[()]]:
        return type(self), ()
