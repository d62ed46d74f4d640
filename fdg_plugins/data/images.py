# SPDX-License-Identifier: Apache-2.0
"""Batches of images, from files or from memory; every tensor depends only on the seed and its scope.

Neither the order of reading nor the number of worker processes or threads changes a single bit: the random draws of a
sample depend on its position only, and a separate generator shuffles.
"""

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from fdg_plugins.core.steps import batches_per_epoch
from fdg_plugins.data.augmentation import USUAL, AugmentationRanges, Epochs, Scope, normalised
from fdg_plugins.data.domains import DomainData
from fdg_plugins.data.image_files import Example, ImageDataset
from fdg_plugins.data.specs import Sample
from fdg_plugins.errors import DataError
from fdg_plugins.randomness import torch_generator

CPU = torch.device("cpu")


class ImageBatches(DataLoader[Any]):
    """A DataLoader of ``(images float32 [B, C, S, S], targets)`` on a device, from a dataset of whole batches.

    Images of 8 bits are normalised on the device. A DataError returned by the dataset is raised here.
    """

    def __init__(self, dataset: ImageDataset, workers: int, device: torch.device, **batching: Any) -> None:
        workers = 0 if dataset.in_memory else workers
        super().__init__(
            dataset,
            num_workers=workers,
            # The only method that shares decoded images, and a hundred times faster than starting an interpreter.
            multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
            collate_fn=_whole,
            pin_memory=device.type == "cuda",
            **batching,
        )
        self.device = device

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().__iter__():
            if isinstance(batch, DataError):
                raise batch
            images, targets = (tensor.to(self.device, non_blocking=True) for tensor in batch)
            yield normalised(images) if images.dtype == torch.uint8 else images, targets


def shuffled_batches(count: int, batch_size: int, seed: int, scope: Scope) -> list[list[int]]:
    """Return the indices in [0, count) in a seeded order, in batches.

    The last batch is kept however small it is, except that a single left-over sample joins the preceding batch,
    because batch normalisation cannot train on one sample.
    """
    order = torch.randperm(count, generator=torch_generator(seed, *scope, "shuffle")).tolist()
    last = batches_per_epoch(count, batch_size) - 1
    starts = range(0, (last + 1) * batch_size, batch_size)
    return [order[start : count if number == last else start + batch_size] for number, start in enumerate(starts)]


def training_epochs(
    data: DomainData,
    *,
    image_size: int,
    batch_size: int,
    seed: int,
    scope: Scope,
    epochs: int,
    augmentation: AugmentationRanges = USUAL,
    workers: int = 0,
    device: torch.device = CPU,
) -> Iterator[Iterator[Example]]:
    """Yield, for each of ``epochs``, the training images in :func:`shuffled_batches`, augmented.

    All draws depend on ``seed`` and the scope ``(*scope, epoch)``; epochs count from 0. The loader's processes persist
    through all epochs and read ahead into the next one. Consume the batches of an epoch before requesting the next.
    """
    count = len(data.train)
    dataset = data.images.dataset(data.train, image_size, "training", Epochs(seed, scope, epochs, augmentation))
    # The indices of an epoch address one of the repetitions of the same samples that the dataset has.
    sampler = (
        [number * count + index for index in batch]
        for number in range(epochs)
        for batch in shuffled_batches(count, batch_size, seed, (*scope, number))
    )
    generator = torch_generator(seed, "workers")
    batches = iter(ImageBatches(dataset, workers, device, batch_sampler=sampler, generator=generator))
    for _ in range(epochs):
        yield itertools.islice(batches, batches_per_epoch(count, batch_size))


def evaluation_batches(
    data: DomainData,
    samples: Sequence[Sample],
    *,
    image_size: int,
    batch_size: int,
    workers: int = 0,
    device: torch.device = CPU,
) -> ImageBatches:
    """Return ``samples`` of ``data`` in batches, in their order, without augmentation.

    The last batch may be smaller, and all are if the images are large; without samples there are no batches.
    """
    dataset = data.images.dataset(samples, image_size, "evaluation")
    size = min(batch_size, dataset.largest_batch or batch_size)
    generator = torch_generator(0, "evaluation", "workers")
    return ImageBatches(dataset, workers, device, batch_size=size, generator=generator)


def reported_batches(
    data: DomainData,
    *,
    image_size: int,
    batch_size: int,
    seed: int,
    scope: Scope,
    shuffled: bool = False,
    workers: int = 0,
    device: torch.device = CPU,
) -> ImageBatches:
    """Return the training images of ``data`` in batches, in their order, as methods report on them.

    They are those of :func:`evaluation_batches`, unless a site trains on crops: then they are one crop of each image,
    drawn by ``seed`` and ``scope``. ``shuffled``: in :func:`shuffled_batches`, for results that depend on the batches:
    in their own order, images of one class stand together.
    """
    dataset = data.images.dataset(data.train, image_size, "report", Epochs(seed, scope))
    size = min(batch_size, dataset.largest_batch or batch_size)
    batching: dict[str, Any] = {"batch_size": size}
    if shuffled:
        batching = {"batch_sampler": shuffled_batches(len(data.train), size, seed, scope)}
    return ImageBatches(dataset, workers, device, **batching, generator=torch_generator(seed, "workers"))


def _whole(batch: Any) -> Any:
    return batch
