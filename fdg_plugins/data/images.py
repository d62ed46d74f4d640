# SPDX-License-Identifier: Apache-2.0
"""Batches of images, from files or from memory; every tensor depends only on the seed and its scope.

Neither the order of reading nor the number of worker processes or threads changes a single bit: the random draws of
sample ``i`` are row ``i`` of one table, and a separate generator shuffles. Images held in an array are not augmented
and are batched by indexing.
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import torch
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset, Sampler

from fdg_plugins.core.steps import batches_per_epoch
from fdg_plugins.data.catalogue import Sample
from fdg_plugins.data.domains import DomainData
from fdg_plugins.data.image_files import ImageFiles
from fdg_plugins.data.rotated import ImageArray
from fdg_plugins.data.transforms import TrainingView, WholeView, checked_size, normalised
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.randomness import torch_generator
from fdg_plugins.tasks import DEFAULT_TASK, Task

Scope = tuple[str | int, ...]
View = Callable[[np.ndarray, int], np.ndarray]
CPU = torch.device("cpu")


class DomainImages(Dataset[tuple[torch.Tensor, Any]]):
    """Samples as ``(image uint8 [3, S, S], target)``: first all through the first view, then all through the second.

    ``views`` may have any length. A view maps the pixels, uint8 ``[H, W, 3]``, and the position ``i`` of a sample to
    the image. Raises DataError, naming the file, if an image cannot be read.
    """

    def __init__(
        self, images: ImageFiles, samples: Sequence[Sample], views: Sequence[View], task: Task = DEFAULT_TASK
    ) -> None:
        images.reserve(sample.file for sample in samples)
        self.task = task
        self.images = images
        self.samples = tuple(samples)
        self.views = views

    def __len__(self) -> int:
        return len(self.samples) * len(self.views)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        number, position = divmod(index, len(self.samples))
        sample = self.samples[position]
        target = self.task.target_of(sample, self.images.read)
        image, target = self.task.view(self.views[number], self.images.read(sample.file), target, position)
        return torch.from_numpy(np.ascontiguousarray(image)), target

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor] | DataError:
        """Return a whole batch, images ``[B, 3, S, S]`` and the task's targets, or the error as a value.

        An error raised in a worker process would carry the worker's whole traceback as its text.
        """
        try:
            images, targets = zip(*(self[index] for index in indices), strict=True)
        except DataError as error:
            return DataError(str(error), public=error.public)
        return torch.stack(images), self.task.collate(targets)


class ArrayImages(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples in memory as ``(image float32 [1, S, S] in [0, 1], label)``, resized only if their size differs.

    The whole sequence of samples is repeated ``times`` times.
    """

    def __init__(self, array: ImageArray, samples: Sequence[Sample], image_size: int, times: int = 1) -> None:
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
        """Return a whole batch, images ``[B, 1, S, S]`` and labels ``[B]``, which needs no collating."""
        chosen = torch.tensor(indices, dtype=torch.int64) % max(len(self.rows), 1)
        images = self.pixels[self.rows[chosen]].unsqueeze(1).float().div_(255.0)
        if images.shape[-1] != self.image_size:
            images = interpolate(images, [self.image_size] * 2, mode="bilinear", antialias=True)
        return images, self.labels[chosen]


class ImageBatches(DataLoader[Any]):
    """A DataLoader of ``(images float32 [B, C, S, S], targets)`` on a device, from a dataset of whole batches.

    Views of files are transferred to the device as 8-bit values and normalised there. A DataError returned by the
    dataset is raised here, with its own text.
    """

    def __init__(
        self, dataset: "DomainImages | ArrayImages", workers: int, device: torch.device, **batching: Any
    ) -> None:
        workers = workers if isinstance(dataset, DomainImages) else 0
        super().__init__(
            dataset,
            num_workers=workers,
            multiprocessing_context=_worker_context(workers),
            collate_fn=_as_it_is,
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


class ShuffledBatches(Sampler[list[int]]):
    """Indices in [0, count) in a seeded order, in batches; each pass yields the same batches.

    The last batch is kept however small it is, except that a single left-over sample joins the preceding batch,
    because batch normalisation cannot train on one sample.
    """

    def __init__(self, count: int, batch_size: int, *, seed: int, scope: Scope) -> None:
        self.count = count
        self.batch_size = batch_size
        self.seed = seed
        self.scope = scope

    def __len__(self) -> int:
        return batches_per_epoch(self.count, self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.count, generator=torch_generator(self.seed, *self.scope, "shuffle")).tolist()
        for number in range(len(self)):
            end = self.count if number == len(self) - 1 else (number + 1) * self.batch_size
            yield order[number * self.batch_size : end]


class ConsecutiveEpochs(Sampler[list[int]]):
    """The batches of consecutive epochs, whose indices address ``epochs`` repetitions of the same samples.

    ``epoch_of(number)`` returns the batches of an epoch, counted from 0; it is called when the epoch begins.
    """

    def __init__(self, epoch_of: Callable[[int], ShuffledBatches], epochs: int) -> None:
        self.epoch_of = epoch_of
        self.epochs = epochs

    def __len__(self) -> int:
        return self.epochs * len(self.epoch_of(0)) if self.epochs else 0

    def __iter__(self) -> Iterator[list[int]]:
        for number in range(self.epochs):
            epoch = self.epoch_of(number)
            for batch in epoch:
                yield [number * epoch.count + index for index in batch]


class EpochViews(Sequence[View]):
    """The augmented views of consecutive epochs, each made on demand because its table of draws takes memory."""

    def __init__(self, image_size: int, num_samples: int, *, seed: int, scope: Scope, epochs: int) -> None:
        self.image_size = checked_size(image_size)
        self.num_samples = num_samples
        self.seed = seed
        self.scope = scope
        self.epochs = epochs
        self._last: tuple[int, View] | None = None

    def __len__(self) -> int:
        return self.epochs

    @overload
    def __getitem__(self, number: int) -> View: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[View]: ...

    def __getitem__(self, number: int | slice) -> View | Sequence[View]:
        if isinstance(number, slice):
            return [self[at] for at in range(*number.indices(self.epochs))]
        if not 0 <= number < self.epochs:
            raise IndexError(number)
        if self._last is None or self._last[0] != number:
            view = TrainingView(self.image_size, self.num_samples, seed=self.seed, scope=(*self.scope, number))
            self._last = (number, view)
        return self._last[1]


def training_epochs(
    data: DomainData,
    *,
    image_size: int,
    batch_size: int,
    seed: int,
    scope: Scope,
    epochs: int,
    workers: int = 0,
    device: torch.device = CPU,
) -> Iterator[Iterator[tuple[torch.Tensor, torch.Tensor]]]:
    """Yield, for each of ``epochs``, the batches that ``training_batches`` returns for the scope ``(*scope, epoch)``.

    Epochs count from 0, and each is set up only when it begins. The loader's processes persist through all epochs and
    read ahead into the next one. Consume the batches of an epoch before requesting the next epoch. Raises
    SettingsError for a ``batch_size`` below 1 or a negative number of ``workers``.
    """
    _check_loading(batch_size, workers)

    def epoch_of(number: int) -> ShuffledBatches:
        return ShuffledBatches(len(data.train), batch_size, seed=seed, scope=(*scope, number))

    dataset = _training_images(data, image_size, seed, scope, epochs)
    sampler = ConsecutiveEpochs(epoch_of, epochs)
    generator = torch_generator(seed, "workers")
    batches = iter(ImageBatches(dataset, workers, device, batch_sampler=sampler, generator=generator))
    for number in range(epochs):
        yield itertools.islice(batches, len(epoch_of(number)))


def training_batches(
    data: DomainData,
    *,
    image_size: int,
    batch_size: int,
    seed: int,
    scope: Scope,
    workers: int = 0,
    device: torch.device = CPU,
) -> ImageBatches:
    """Return the training images of ``data`` in batches, augmented and shuffled by ``seed`` and ``scope``.

    The loader is for one epoch: include the epoch in ``scope`` and build a new loader for the next. Batches have
    ``batch_size`` samples except the last (see ``ShuffledBatches``). Images held in an array are not augmented
    and need no workers. Raises SettingsError for a ``batch_size`` below 1 or a negative number of ``workers``.
    """
    _check_loading(batch_size, workers)
    return ImageBatches(
        _training_images(data, image_size, seed, scope),
        workers,
        device,
        batch_sampler=ShuffledBatches(len(data.train), batch_size, seed=seed, scope=scope),
        generator=torch_generator(seed, *scope, "workers"),
    )


def evaluation_batches(
    data: DomainData,
    samples: Sequence[Sample],
    *,
    image_size: int,
    batch_size: int,
    workers: int = 0,
    device: torch.device = CPU,
) -> ImageBatches:
    """Return ``samples`` of ``data`` in batches, in their order, resized only.

    The last batch may be smaller; without samples there are no batches. Images held in an array need no workers.
    Raises SettingsError for a ``batch_size`` below 1 or a negative number of ``workers``.
    """
    _check_loading(batch_size, workers)
    dataset: DomainImages | ArrayImages
    if isinstance(data.images, ImageArray):
        dataset = ArrayImages(data.images, samples, image_size)
    else:
        dataset = DomainImages(data.images, samples, [WholeView(image_size)], data.task)
    generator = torch_generator(0, "evaluation", "workers")
    return ImageBatches(dataset, workers, device, batch_size=batch_size, generator=generator)


def _training_images(
    data: DomainData, image_size: int, seed: int, scope: Scope, epochs: int | None = None
) -> DomainImages | ArrayImages:
    """Return the training images: once, or once per epoch; the epoch's number then becomes the end of the scope."""
    count = len(data.train)
    if isinstance(data.images, ImageArray):
        return ArrayImages(data.images, data.train, image_size, times=1 if epochs is None else epochs)
    views: Sequence[View]
    if epochs is None:
        views = [TrainingView(image_size, count, seed=seed, scope=scope)]
    else:
        views = EpochViews(image_size, count, seed=seed, scope=scope, epochs=epochs)
    return DomainImages(data.images, data.train, views, data.task)


def _as_it_is(batch: Any) -> Any:
    return batch


def _worker_context(workers: int) -> str | None:
    """Return the start method of worker processes: fork on Linux, the only one that shares decoded images.

    Forking is also a hundred times faster than starting an interpreter, and a loader starts its processes every epoch.
    """
    return "fork" if workers and sys.platform == "linux" else None


def _check_loading(batch_size: int, workers: int) -> None:
    if batch_size < 1:
        raise SettingsError(f"batch_size is {batch_size}; expected at least 1 sample.", public=True)
    if workers < 0:
        raise SettingsError(f"workers is {workers}; expected 0 or more processes.", public=True)
