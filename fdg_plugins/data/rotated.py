# SPDX-License-Identifier: Apache-2.0
"""Rotated digits: one set of grey images distributed over the domains; each domain rotates its images by its angle.

References: Ghifary, Kleijn, Zhang, Balduzzi, "Domain Generalization for Object Recognition with Multi-task
Autoencoders", ICCV 2015; Gulrajani, Lopez-Paz, "In Search of Lost Domain Generalization" (DomainBed), ICLR
2021, whose data set this is: all images in one random order, every sixth to the same domain.

Differences: DomainBed rotates each image with Pillow; here, all are rotated at once as tensors, which rounds some
pixels differently. DomainBed takes the order from the run's seed; here, it is the same in all runs.
"""

from collections.abc import Callable
from pathlib import Path

import torch

from fdg_plugins.data.image_array import ImageArray
from fdg_plugins.data.specs import RotatedSpec, Sample
from fdg_plugins.errors import DataError
from fdg_plugins.randomness import numpy_generator


def rotated_domain(data_root: Path | None, spec: RotatedSpec, domain: str) -> tuple[ImageArray, tuple[Sample, ...]]:
    """Return the rotated images of a domain and their samples, in the order of distribution."""
    images, labels = _LOADERS[spec.source](data_root, spec)
    dealt = deal(len(images), spec, domain)
    angle = spec.angles[spec.domains.index(domain)]
    chosen = list(dealt.values())
    samples = tuple(Sample(file, label) for file, label in zip(dealt, labels[chosen].tolist(), strict=True))
    return ImageArray(rotate(images[chosen], angle), {file: row for row, file in enumerate(dealt)}), samples


def deal(count: int, spec: RotatedSpec, domain: str) -> dict[str, int]:
    """Return the images of a domain, out of ``count``: a map from the name of each to its index in [0, count).

    The order of the images depends only on the data set's source and on ``count``; of the first ``spec.limit`` images
    in it, every sixth (with six domains) goes to the same domain. Names are positions in that order, and sorting them
    preserves it.
    """
    order = numpy_generator(0, "rotated", spec.source).permutation(count)[: spec.limit].tolist()
    positions = range(spec.domains.index(domain), len(order), len(spec.domains))
    return {f"{position:05d}": order[position] for position in positions}


def rotate(images: torch.Tensor, angle: int) -> torch.Tensor:
    """Return ``images: uint8 [N, S, S]``, rotated counter-clockwise by ``angle`` degrees; new corners are black."""
    if len(images) == 0:
        return images
    # torchvision takes longer to import than everything else in a site's process, and few sites open these data sets.
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional

    # As the channels of one image, all use the same grid. Without ``fill``, pixels from outside are zero.
    return functional.rotate(images, angle, interpolation=InterpolationMode.BILINEAR)


def _load_mnist(data_root: Path | None, spec: RotatedSpec) -> tuple[torch.Tensor, torch.Tensor]:
    if data_root is None:
        raise DataError(
            f"data set {spec.name} has no data root; expected the folder that holds mnist/MNIST/raw/.", public=True
        )
    from fdg_plugins.data.mnist import read_mnist  # requires torchvision

    return read_mnist(Path(data_root), spec.size)


def _load_digits(data_root: Path | None, spec: RotatedSpec) -> tuple[torch.Tensor, torch.Tensor]:
    # Imported on demand: importing scikit-learn loads some 300 modules, which takes a tenth of a second at every start
    # of a site's process, and few sites open this data set.
    from fdg_plugins.data.digits import read_digits

    return read_digits(spec.size)


# By source: images uint8 [N, S, S] and labels int64 [N], in a fixed order.
_LOADERS: dict[str, Callable[[Path | None, RotatedSpec], tuple[torch.Tensor, torch.Tensor]]] = {
    "mnist": _load_mnist,
    "digits": _load_digits,
}
