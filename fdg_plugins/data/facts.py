# SPDX-License-Identifier: Apache-2.0
"""Facts about the images of a domain, for ``fdg data check``: sizes, formats, damage, digests, and what masks cover."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fdg_plugins.data.decoding import MOST_PIXELS, UPRIGHT, check_image, ignored_orientation, open_image
from fdg_plugins.data.pair_reading import PairForm
from fdg_plugins.data.presets import PRESETS
from fdg_plugins.data.specs import PairSample, Sample, SegmentationSpec
from fdg_plugins.digests import sha256_of
from fdg_plugins.errors import DataError

_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")


@dataclass(frozen=True)
class ImageFacts:
    """What the images of a domain are like.

    ``sizes`` has the height and width, in pixels, of each usable image, ``formats`` how many have which, by Pillow's
    name, ``grey`` how many of them have no colour, and ``turned`` how many have an EXIF orientation that is ignored.
    ``damaged`` says of every other image why it cannot be used;
    ``digests`` has the SHA-256 of every file that can be read.
    """

    samples: tuple[Sample, ...]
    sizes: tuple[tuple[int, int], ...]
    formats: Mapping[str, int]
    grey: int
    damaged: Mapping[Sample, DataError]
    digests: Mapping[Sample, str]
    turned: int = 0

    @property
    def usable(self) -> list[Sample]:
        """The images that can be used, in their order."""
        return [sample for sample in self.samples if sample not in self.damaged]


def image_facts(folder: Path, samples: Iterable[Sample], max_pixels: int = MOST_PIXELS) -> ImageFacts:
    """Read and decode the images below the data set's folder, of at most ``max_pixels``, and return their facts."""
    looked: list[Sample] = []
    sizes: list[tuple[int, int]] = []
    formats: Counter[str] = Counter()
    damaged: dict[Sample, DataError] = {}
    digests: dict[Sample, str] = {}
    grey = turned = 0
    for sample in samples:
        looked.append(sample)
        path = folder / sample.file
        try:
            digests[sample] = _digest_of(path)
            check_image(path, max_pixels)
            with open_image(path, max_pixels) as image:
                sizes.append((image.height, image.width))
                formats[str(image.format)] += 1
                grey += image.mode in _GREY
                turned += ignored_orientation(image) != UPRIGHT
        except DataError as error:
            damaged[sample] = error
    return ImageFacts(tuple(looked), tuple(sizes), dict(formats), grey, damaged, digests, turned)


def _digest_of(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise DataError(f"image {path} cannot be read: {error.strerror}.") from error


@dataclass(frozen=True)
class MaskFacts:
    """What the pairs of a domain are like.

    ``sizes`` has the spatial size S of each usable image, in the order of its axes, and ``shares`` ``[N, Y]`` the
    fraction of its pixels in each class; ``damaged`` says of every other pair why it cannot be used. ``digests`` has
    the SHA-256 of every image that can be read. ``elsewhere`` are the usable pairs whose headers place image and mask
    differently.
    """

    sizes: tuple[tuple[int, ...], ...]
    shares: np.ndarray
    damaged: Mapping[PairSample, DataError]
    digests: Mapping[PairSample, str]
    elsewhere: tuple[PairSample, ...] = ()

    @property
    def pairs(self) -> int:
        """The number of pairs, damaged ones included."""
        return len(self.sizes) + len(self.damaged)


def mask_facts(
    root: Path, spec: SegmentationSpec, pairs: Iterable[PairSample], max_pixels: int = MOST_PIXELS
) -> MaskFacts:
    """Decode the pairs below the resolved data root, of at most ``max_pixels`` each, and return their facts."""
    sizes: list[tuple[int, ...]] = []
    shares: list[np.ndarray] = []
    damaged: dict[PairSample, DataError] = {}
    digests: dict[PairSample, str] = {}
    elsewhere: list[PairSample] = []
    folder, form = root / spec.folder, _form(spec, max_pixels)
    for pair in pairs:
        try:
            digests[pair] = _digest_of(folder / pair.file)
            labels = form.read(folder / pair.file, folder / pair.mask)[1][0]
        except DataError as error:
            damaged[pair] = error
            continue
        sizes.append(labels.shape)
        shares.append(class_shares(labels, len(spec.classes)))
        if form.lies_elsewhere(folder / pair.file, folder / pair.mask):
            elsewhere.append(pair)
    fractions = np.array(shares).reshape(-1, len(spec.classes))
    return MaskFacts(tuple(sizes), fractions, damaged, digests, tuple(elsewhere))


def read_pair(
    root: Path, spec: SegmentationSpec, pair: PairSample, max_pixels: int = MOST_PIXELS
) -> tuple[np.ndarray, np.ndarray]:
    """Return an image ``[C, *S]`` below the resolved data root, of at most ``max_pixels``, and its classes ``[*S]``.

    Volumes are turned to the orientation RAS, and values have to suit the data set's own preset. Raises as
    :meth:`PairForm.read` does.
    """
    image, labels = _form(spec, max_pixels).read(root / spec.folder / pair.file, root / spec.folder / pair.mask)
    return image, labels[0]


def _form(spec: SegmentationSpec, max_pixels: int) -> PairForm:
    preset = PRESETS.get(spec.preset)
    in_bytes = preset is not None and preset.of_photographs and spec.dims in preset.dims
    return PairForm.of(spec, oriented=True, max_pixels=max_pixels, in_bytes=in_bytes)


def class_shares(labels: np.ndarray, classes: int) -> np.ndarray:
    """Return the fraction of the pixels in each class, ``[Y]``."""
    return np.bincount(labels.ravel(), minlength=classes) / labels.size
