# SPDX-License-Identifier: Apache-2.0
"""Facts about the images of a domain, for ``fdg data check``: sizes, formats, damage, digests, and what masks cover."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fdg_plugins.data.decoding import (
    MOST_PIXELS,
    UPRIGHT,
    DamagedError,
    PairForm,
    check_image,
    ignored_orientation,
    open_image,
)
from fdg_plugins.data.presets import BYTES, PRESETS
from fdg_plugins.data.specs import KnownSpec, PairSample, Sample, SegmentationSpec
from fdg_plugins.storage import sha256_of

_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")


@dataclass
class ImageFacts:
    """What the images of a domain are like.

    ``sizes`` has the spatial size, in pixels, of each usable image, ``formats`` how many have which, by Pillow's name,
    ``grey`` how many of them have no colour, and ``turned`` how many have an EXIF orientation that is ignored.
    ``damaged`` says of every other image why it cannot be used; ``digests`` has the SHA-256 of every file that can be
    read. ``shares``: of images with masks, the fraction of the pixels in each class, ``[Y]`` each.
    """

    samples: list[Sample] = field(default_factory=list)
    sizes: list[tuple[int, ...]] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    grey: int = 0
    turned: int = 0
    damaged: dict[Sample, DamagedError] = field(default_factory=dict)
    digests: dict[Sample, str] = field(default_factory=dict)
    shares: list[np.ndarray] = field(default_factory=list)

    @property
    def usable(self) -> list[Sample]:
        """The images that can be used, in their order."""
        return [sample for sample in self.samples if sample not in self.damaged]

    def note_image(self, path: Path, max_pixels: int) -> None:
        """Decode an image and note what it is like; raise ``DamagedError`` if it cannot be used."""
        check_image(path, max_pixels)
        with open_image(path, max_pixels) as image:
            self.sizes.append((image.height, image.width))
            self.formats[str(image.format)] += 1
            self.grey += image.mode in _GREY
            self.turned += ignored_orientation(image) != UPRIGHT


def facts_of(root: Path, spec: KnownSpec, samples: Iterable[Sample], max_pixels: int = MOST_PIXELS) -> ImageFacts:
    """Decode the images or pairs below the resolved data root, of at most ``max_pixels`` each; return their facts."""
    facts = ImageFacts()
    for sample in samples:
        path = root / spec.folder / sample.file
        facts.samples.append(sample)
        try:
            if isinstance(spec, SegmentationSpec):
                labels = read_pair(root, spec, sample, max_pixels)[1]
                facts.sizes.append(labels.shape)
                facts.shares.append(class_shares(labels, len(spec.classes)))
            else:
                facts.note_image(path, max_pixels)
            facts.digests[sample] = sha256_of(path)
        except DamagedError as error:
            facts.damaged[sample] = error
    return facts


def read_pair(root: Path, spec: SegmentationSpec, pair: Sample, max_pixels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an image ``[C, *S]`` below the resolved data root, of at most ``max_pixels``, and its classes ``[*S]``.

    Volumes are turned to the orientation RAS, and values have to suit the data set's own preset. Raises as
    :meth:`PairForm.read` does.
    """
    assert isinstance(pair, PairSample)
    preset = PRESETS.get(spec.preset)
    in_bytes = preset is not None and preset.intensity == BYTES and spec.dims in preset.dims
    form = PairForm(spec, True, max_pixels, in_bytes)
    image, labels = form.read(root / spec.folder / pair.file, root / spec.folder / pair.mask)
    return image, labels[0]


def class_shares(labels: np.ndarray, classes: int) -> np.ndarray:
    """Return the fraction of the pixels in each class, ``[Y]``."""
    return np.bincount(labels.ravel(), minlength=classes) / labels.size
