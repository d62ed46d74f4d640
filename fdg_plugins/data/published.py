# SPDX-License-Identifier: Apache-2.0
"""Data sets that are published in few files: MNIST, EMNIST, CIFAR, and MNIST's digits, rotated by domain.

They are read from their publishers' files, uncompressed, in the folders that torchvision gives them; of CIFAR, the
*binary* version, as the Python batches are pickles. Folders of images, ``<data set>/{train,test}/<class>/*``, are read
in place of either.

Rotated digits are one set of grey images distributed over the domains; each domain rotates its images by its angle.
References: Ghifary, Kleijn, Zhang, Balduzzi, "Domain Generalization for Object Recognition with Multi-task
Autoencoders", ICCV 2015; Gulrajani, Lopez-Paz, "In Search of Lost Domain Generalization" (DomainBed), ICLR
2021, whose data set this is: all images in one random order, every sixth to the same domain.
Differences: DomainBed rotates each image with Pillow; here, all are rotated at once as tensors, which rounds some
pixels differently. DomainBed takes the order from the run's seed; here, it is the same in all runs.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from fdg_plugins.data.catalogue import DATASETS, source_of
from fdg_plugins.data.decoding import MOST_PIXELS, decoding, read_image
from fdg_plugins.data.folders import files_in, is_folder, refuse_outside
from fdg_plugins.data.image_files import ImageArray
from fdg_plugins.data.specs import Listing, PublishedSpec, RotatedSpec, Sample
from fdg_plugins.errors import DataError, load_extra
from fdg_plugins.randomness import numpy_generator

STAND_IN_TEST = 297  # of the 1,797 digits of the stand-in
MNIST_PARTS = ("train", "test")

Arrays = tuple[torch.Tensor, torch.Tensor]


def read_arrays(
    data_root: Path | None, spec: PublishedSpec | RotatedSpec, domain: str, max_pixels: int = MOST_PIXELS
) -> tuple[ImageArray, Listing]:
    """Return the images of a domain, named by position: in the files, or in the order in which they were dealt.

    Without a data root, they are the stand-in's. ``max_pixels``: of an image in a separate file.
    """
    root = None if data_root is None else data_root.resolve()
    if isinstance(spec, RotatedSpec):  # MNIST has its training part first
        parts = [read_digits(spec.size)] if root is None else [read_part(root, spec, part) for part in MNIST_PARTS]
        images, labels = _together(parts)
        dealt = deal(len(images), spec, domain)
        names, rows = [*dealt], [*dealt.values()]
        images, labels = rotate(images[rows], spec.angles[spec.domains.index(domain)]), labels[rows]
    else:
        if root is None:
            images, labels = stand_in_part(spec.name, domain)
        elif is_folder(root / spec.folder / domain):
            images, labels = _in_folders(root, spec, domain, max_pixels)
        else:
            images, labels = read_part(root, spec, domain)
        names = [f"{position:05d}" for position in range(len(labels))]
    samples = tuple(Sample(name, label) for name, label in zip(names, labels.tolist(), strict=True))
    return ImageArray(images, {name: row for row, name in enumerate(names)}), Listing(samples)


def read_part(root: Path, spec: PublishedSpec | RotatedSpec, part: str) -> Arrays:
    """Return images uint8 ``[N, S, S]``, or ``[N, 3, S, S]`` in colour, and labels int64 ``[N]`` of a part.

    Raises DataError for a file below the resolved ``root`` that is missing, broken or of another size.
    """
    arrays, source = [], source_of(spec)
    for names in source.files[part]:
        paths = [root / source.folder / name for name in names]
        for path in paths:
            refuse_outside(root, path)
        images, labels = _read_idx(*paths) if source.channels == 1 else _read_records(paths[0], source)
        shape = (len(labels), *([3] if source.channels == 3 else []), source.size, source.size)
        if images.shape != shape or not {*labels.tolist()} <= {*range(len(source.classes))}:
            expected = f"images {[*shape]}, and labels from 0 to {len(source.classes) - 1}"
            raise DataError(field=f"shape of file {paths[0]}", value=[*images.shape], expected=expected)
        arrays.append((images, labels))
    return _together(arrays)


def _read_idx(of_images: Path, of_labels: Path) -> Arrays:
    # torchvision takes longer to import than everything else in a site's process; few sites open these data sets.
    from torchvision.datasets.mnist import read_image_file, read_label_file

    with decoding(of_images):
        images = read_image_file(str(of_images))
    with decoding(of_labels):
        return images, read_label_file(str(of_labels))


def _read_records(path: Path, spec: PublishedSpec) -> Arrays:
    of_labels = spec.label_bytes
    with decoding(path):
        records = torch.from_numpy(np.fromfile(path, dtype=np.uint8)).view(-1, of_labels + 3 * spec.size**2)
    pixels = records[:, of_labels:].reshape(-1, 3, spec.size, spec.size).contiguous()
    return pixels, records[:, of_labels - 1].long()


def _together(parts: list[Arrays]) -> Arrays:
    images, labels = zip(*parts, strict=True)
    return (torch.cat(images), torch.cat(labels)) if len(parts) > 1 else parts[0]


def _in_folders(root: Path, spec: PublishedSpec, domain: str, max_pixels: int) -> Arrays:
    images, labels = [], []
    for label, name in enumerate(spec.classes):
        folder = root / spec.folder / domain / name
        for path in (folder / file for file in files_in(root, folder)[0]):
            picture = read_image(path, max_pixels)
            pixels = torch.from_numpy(np.array(picture.convert("L") if spec.channels == 1 else picture))
            if pixels.shape[:2] != (spec.size, spec.size):
                raise DataError(field=f"size of image {path}", value=[*pixels.shape[:2]], expected=f"{[spec.size] * 2}")
            images.append(pixels if spec.channels == 1 else pixels.permute(2, 0, 1).contiguous())
            labels.append(label)
    return torch.stack(images), torch.tensor(labels)


@lru_cache(maxsize=8)
def stand_in_part(name: str, domain: str) -> Arrays:
    """Return the stand-in of a part of the data set ``name``: the 1,797 digits of scikit-learn, in colour where it is.

    The class is the digit; with 100 classes, ten times the colour plus the digit. The tensors are shared.
    """
    spec = DATASETS.get(name)
    assert isinstance(spec, PublishedSpec)
    digits, labels = read_digits(spec.size)
    generator = numpy_generator(0, "stand-in", spec.name)
    order = generator.permutation(len(labels))
    chosen = torch.from_numpy(order[:STAND_IN_TEST] if domain == "test" else order[STAND_IN_TEST:])
    if spec.channels == 1:
        return digits[chosen], labels[chosen]
    inks = torch.from_numpy(generator.integers(0, 256, size=(10, 2, 3)).astype(np.float32))
    colours = torch.from_numpy(generator.permutation(len(labels)) % 10)[chosen]
    paper, ink = inks[colours, 0, :, None, None], inks[colours, 1, :, None, None]
    shade = digits[chosen].unsqueeze(1).float() / 255
    images = (paper + (ink - paper) * shade).round().to(torch.uint8)
    return images, labels[chosen] + (10 * colours if len(spec.classes) == 100 else 0)


@lru_cache(maxsize=1)  # all sites of a process share it; reading scikit-learn's table is slow
def read_digits(size: int) -> Arrays:
    """Return the 1,797 digits included in scikit-learn, bilinearly scaled from 8x8 to uint8 ``[1797, size, size]``, and
    their labels ``[1797]``. The tensors are shared: copy them before changing them.
    """
    from torchvision.transforms.v2 import functional

    digits = load_extra("sklearn.datasets", "the stand-in of digits", "lab").load_digits()
    scaled = functional.resize(torch.from_numpy(digits.images).float() / 16.0, [size, size], antialias=True)
    return functional.to_dtype(scaled.clamp(0.0, 1.0), torch.uint8, scale=True), torch.from_numpy(digits.target).long()


def deal(count: int, spec: RotatedSpec, domain: str) -> dict[str, int]:
    """Return the images of a domain, out of ``count``: a map from the name of each to its index in [0, count).

    Names are positions in an order that depends only on the data set's source and on ``count``; of the first
    ``spec.limit`` images in it, every sixth (with six domains) goes to the same domain.
    """
    order = numpy_generator(0, "rotated", spec.source).permutation(count)[: spec.limit].tolist()
    positions = range(spec.domains.index(domain), len(order), len(spec.domains))
    return {f"{position:05d}": order[position] for position in positions}


def rotate(images: torch.Tensor, angle: int) -> torch.Tensor:
    """Return ``images: uint8 [N, S, S]``, rotated counter-clockwise by ``angle`` degrees; new corners are black."""
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional

    # As the channels of one image, all use the same grid. Without ``fill``, pixels from outside are zero.
    return functional.rotate(images, angle, interpolation=InterpolationMode.BILINEAR)
