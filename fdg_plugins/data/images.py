# SPDX-License-Identifier: Apache-2.0
"""Images, from files or from memory, in batches whose every tensor depends only on the seed and its scope.

Neither the order of reading nor the number of worker processes changes a single bit: the augmentation
of sample ``i`` is drawn from a generator of its own, and the shuffle from another. Images in memory are
not augmented, and are batched by indexing.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate
from torchvision.transforms.v2 import functional

from fdg_plugins.data.catalogue import Sample
from fdg_plugins.data.domains import DomainData
from fdg_plugins.data.rotated import ImageArray
from fdg_plugins.data.transforms import checked_size, evaluation_transform, read_image, training_transform
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.randomness import seeded, torch_generator

Scope = tuple[str | int, ...]


class DomainImages(Dataset[tuple[torch.Tensor, int]]):
    """Samples as ``(image float32 [3, S, S], label)``, with ``S`` set by ``transform``.

    The random part of ``transform`` is drawn, for the sample at index ``i``, under
    ``seeded(seed, *scope, i)``. Give a scope that names the occasion, e.g. ``(site, round, epoch)``.
    Raises DataError naming the file when an image cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        samples: Sequence[Sample],
        transform: Callable[[Image.Image], torch.Tensor],
        *,
        seed: int,
        scope: Scope,
    ) -> None:
        self.folder = folder
        self.samples = tuple(samples)
        self.transform = transform
        self.seed = seed
        self.scope = scope

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        sample = self.samples[index]
        image = read_image(self.folder / sample.file)
        with seeded(self.seed, *self.scope, index):
            return self.transform(image), sample.label

    def __getitems__(self, indices: list[int]) -> "list[tuple[torch.Tensor, int]] | DataError":
        """Return the samples of a batch, or the error as a value.

        Raised in a worker, the error would come out with the worker's whole traceback as its text.
        """
        try:
            return [self[index] for index in indices]
        except DataError as error:
            return DataError(str(error))


class ArrayImages(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples in memory as ``(image float32 [1, S, S] in [0, 1], label)``, resized only if they have another size."""

    def __init__(self, array: ImageArray, samples: Sequence[Sample], image_size: int) -> None:
        self.pixels = array.pixels
        self.rows = torch.tensor([array.rows[sample.file] for sample in samples], dtype=torch.int64)
        self.labels = torch.tensor([sample.label for sample in samples], dtype=torch.int64)
        self.image_size = checked_size(image_size)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = self.__getitems__([index])
        return images[0], labels[0]

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a whole batch, images ``[B, 1, S, S]`` and labels ``[B]``, which needs no collating."""
        chosen = torch.tensor(indices, dtype=torch.int64)
        images = self.pixels[self.rows[chosen]].unsqueeze(1).float().div_(255.0)
        if images.shape[-1] != self.image_size:
            images = functional.resize(images, [self.image_size, self.image_size], antialias=True)
        return images, self.labels[chosen]


class ImageBatches(DataLoader[Any]):
    """A DataLoader of ``(images float32 [B, C, S, S], labels int64 [B])``; a worker's DataError keeps its text."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().__iter__():
            if isinstance(batch, DataError):
                raise batch
            yield batch


class ShuffledBatches(Sampler[list[int]]):
    """Indices of ``[0, count)`` in a seeded order, in batches; each pass over it gives the same batches.

    The last batch is kept however small, but a single left-over sample joins the batch before it,
    because batch normalisation cannot train on one sample.
    """

    def __init__(self, count: int, batch_size: int, *, seed: int, scope: Scope) -> None:
        self.count = count
        self.batch_size = batch_size
        self.seed = seed
        self.scope = scope

    def __len__(self) -> int:
        whole, left_over = divmod(self.count, self.batch_size)
        return whole + (left_over > 1 or (left_over == 1 and whole == 0))

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.count, generator=torch_generator(self.seed, *self.scope, "shuffle")).tolist()
        for number in range(len(self)):
            end = self.count if number == len(self) - 1 else (number + 1) * self.batch_size
            yield order[number * self.batch_size : end]


def training_batches(
    data: DomainData,
    *,
    image_size: int,
    batch_size: int,
    seed: int,
    scope: Scope,
    workers: int = 0,
    pin_memory: bool = False,
) -> ImageBatches:
    """Return the training images of ``data``, augmented and shuffled as ``seed`` and ``scope`` say.

    The loader is for one epoch: put the epoch into ``scope`` and build the next one anew. Batches have
    ``batch_size`` samples except the last (see ``ShuffledBatches``). Images in memory are not augmented
    and need no workers.
    """
    _check_loading(batch_size, workers)
    dataset: DomainImages | ArrayImages
    if isinstance(data.images, ImageArray):
        dataset, workers = ArrayImages(data.images, data.train, image_size), 0
    else:
        dataset = DomainImages(data.images, data.train, training_transform(image_size), seed=seed, scope=scope)
    return ImageBatches(
        dataset,
        batch_sampler=ShuffledBatches(len(dataset), batch_size, seed=seed, scope=scope),
        num_workers=workers,
        pin_memory=pin_memory,
        collate_fn=_collate,
        generator=torch_generator(seed, *scope, "workers"),
    )


def evaluation_batches(
    data: DomainData, samples: Sequence[Sample], *, image_size: int, batch_size: int, workers: int = 0
) -> ImageBatches:
    """Return ``samples`` of ``data`` in their order, resized only.

    The last batch may be smaller, and no sample gives no batch. Images in memory need no workers.
    """
    _check_loading(batch_size, workers)
    dataset: DomainImages | ArrayImages
    if isinstance(data.images, ImageArray):
        dataset, workers = ArrayImages(data.images, samples, image_size), 0
    else:
        dataset = DomainImages(data.images, samples, evaluation_transform(image_size), seed=0, scope=("evaluation",))
    return ImageBatches(
        dataset,
        batch_size=batch_size,
        num_workers=workers,
        collate_fn=_collate,
        generator=torch_generator(0, "evaluation", "workers"),
    )


def _collate(samples: list[tuple[torch.Tensor, int]] | tuple[torch.Tensor, torch.Tensor] | DataError) -> Any:
    """Return single samples as one batch, and a batch or an error as it is."""
    return default_collate(samples) if isinstance(samples, list) else samples


def _check_loading(batch_size: int, workers: int) -> None:
    if batch_size < 1:
        raise SettingsError(f"batch_size is {batch_size}; expected at least 1 sample.")
    if workers < 0:
        raise SettingsError(f"workers is {workers}; expected 0 or more processes.")
