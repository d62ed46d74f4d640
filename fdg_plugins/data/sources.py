# SPDX-License-Identifier: Apache-2.0
"""What a source of images provides, whatever holds them: datasets for training, evaluation and reports, and a check.

A dataset returns whole batches; ``fdg_plugins.data.images`` decides which samples form a batch, and in which order.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch.utils.data import Dataset

from fdg_plugins.data.augmentation import USUAL, AugmentationRanges
from fdg_plugins.data.specs import Sample

Scope = tuple[str | int, ...]


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


class ImageDataset(Dataset[Any], ABC):
    """Samples by index; those of several epochs follow each other.

    ``in_memory``: whether batches come from memory, so that processes that read ahead gain nothing. ``largest_batch``:
    the number of images that an evaluation takes at once, whatever batch size it asks for; None: any.
    """

    in_memory: ClassVar[bool] = False
    largest_batch: int | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitems__(self, indices: list[int]) -> Any:
        """Return the images and targets of a whole batch, B first, or a DataError as a value.

        An error raised in a worker process would carry the worker's whole traceback as its text.
        """


class ImageSource(ABC):
    """The images of a domain, identified by their samples.

    ``formats``: those that its files may have. ``reports_differ``: whether :meth:`reported` differs from
    :meth:`evaluation`, in images or in targets. ``location``: where the images are, for the site's own log.
    """

    formats: ClassVar[tuple[str, ...]] = ()
    reports_differ: bool = False

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

    @property
    def location(self) -> str:
        """Where the images are, for the site's own log."""
        return ""
