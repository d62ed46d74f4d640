# SPDX-License-Identifier: Apache-2.0
"""Seconds of an epoch of a site's training batches, against the usual script: ImageFolder, Pillow, DataLoader.

Both draw the same augmentation, of the same images, in one process per core. The reference keeps its processes from
epoch to epoch; a site starts them anew for each round, here of one epoch and of five. A site keeps what it has decoded,
so the first epoch has a row of its own. The images are photographs where ``FDG_DATA_ROOT`` names PACS, else the
stand-in's, enlarged.
"""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Subset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from cases.measure import Goal, Row, interleave, lap
from fdg_plugins.data import PACS, DomainData, open_domain
from fdg_plugins.data.augmentation import IMAGENET_DEVIATION, IMAGENET_MEAN
from fdg_plugins.data.image_files import ImageFiles
from fdg_plugins.data.images import training_epochs
from fdg_plugins.data.stand_in import draw

DOMAIN = "photo"
PIXELS = 128
BATCH = 32
MEMORY = 2**30
GOAL = Goal("ratio", 1 / 4, "ratio ≤ 1/4")

EPOCHS = 5  # of a round

Epochs = Callable[[], Iterable[tuple[torch.Tensor, torch.Tensor]]]  # images [B, 3, S, S] and labels [B]


def rows(quick: bool = False) -> list[Row]:
    """Return the rows of a first epoch and of later rounds; ``quick``: of 2 images of each class."""
    workers, repetitions = (1, 1) if quick else (len(os.sched_getaffinity(0)), 5)
    data_root = "" if quick else os.environ.get("FDG_DATA_ROOT", "").strip()
    with tempfile.TemporaryDirectory() as name:
        root = Path(data_root or write_pictures(Path(name), images_per_class=2 if quick else 200))
        data = opened(root)
        what = f"{len(data.train)} {'photographs' if data_root else 'drawings'}, {PIXELS} px, {workers} processes"
        plain = plain_epochs(data, workers)
        first = _seconds(lambda: our_rounds(opened(root), workers, 1)(), plain, 1, repetitions)
        single = _seconds(our_rounds(data, workers, 1), plain, 1, repetitions)
        several = _seconds(our_rounds(data, workers, EPOCHS), plain, EPOCHS, 1 if quick else 2)
    return [
        Row(f"first epoch of {what}: a site / ImageFolder", first["ours"], first["plain"]),
        Row(f"later round of one epoch of {what}: a site / ImageFolder", single["ours"], single["plain"]),
        Row(
            f"later round of {EPOCHS} epochs of {what}: a site / ImageFolder",
            several["ours"],
            several["plain"],
            goal=GOAL,
        ),
    ]


def write_pictures(root: Path, images_per_class: int) -> Path:
    """Draw the domain below ``root``, as JPEG files of 128 pixels, and return ``root``."""
    for class_name in PACS.classes:
        folder = root / PACS.folder / DOMAIN / class_name
        folder.mkdir(parents=True)
        for index in range(images_per_class):
            draw(DOMAIN, class_name, index).resize((PIXELS, PIXELS)).save(folder / f"{index:03d}.jpg")
    return root


def opened(root: Path) -> DomainData:
    """Return the domain as a site opens it, with nothing decoded yet."""
    return open_domain(root, PACS.name, DOMAIN, seed=1, image_memory=MEMORY)


def our_rounds(data: DomainData, workers: int, epochs: int) -> Epochs:
    """Return what begins another round of so many epochs each time it is called."""
    numbers = itertools.count()

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        scope = ("site", next(numbers))
        for epoch in training_epochs(
            data, image_size=PIXELS, batch_size=BATCH, seed=1, scope=scope, epochs=epochs, workers=workers
        ):
            yield from epoch

    return batches


def plain_epochs(data: DomainData, workers: int) -> Epochs:
    """Return what begins another epoch of the same images as a script without this package has it."""
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(PIXELS, scale=(0.8, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.4),
            v2.RandomGrayscale(0.1),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(IMAGENET_MEAN, IMAGENET_DEVIATION),
        ]
    )
    assert isinstance(data.images, ImageFiles)
    folder = data.images.folder
    images = ImageFolder(str(folder / DOMAIN), transform)
    wanted = {str(folder / sample.file) for sample in data.train}
    rows = [row for row, (path, _) in enumerate(images.samples) if path in wanted]
    loader = DataLoader(
        Subset(images, rows), batch_size=BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    return lambda: loader


def _seconds(ours: Epochs, plain: Epochs, epochs: int, repetitions: int) -> dict[str, float]:
    """Return the median seconds of so many epochs of each, taking turns."""
    return interleave(
        [
            lambda: lap("ours", lambda: _exhaust(ours())),
            lambda: lap("plain", lambda: _exhaust(itertools.chain.from_iterable(plain() for _ in range(epochs)))),
        ],
        repetitions,
    )


def _exhaust(batches: Iterable[object]) -> None:
    for _ in batches:
        pass
