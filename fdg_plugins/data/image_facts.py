# SPDX-License-Identifier: Apache-2.0
"""Facts about the image files of a domain: sizes, formats, which cannot be used, and which have the same bytes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fdg_plugins.data.decoding import MOST_PIXELS, UPRIGHT, check_image, ignored_orientation, open_image
from fdg_plugins.data.specs import Sample
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
            digests[sample] = digest_of(path)
            check_image(path, max_pixels)
            with open_image(path, max_pixels) as image:
                sizes.append((image.height, image.width))
                formats[str(image.format)] += 1
                grey += image.mode in _GREY
                turned += ignored_orientation(image) != UPRIGHT
        except DataError as error:
            damaged[sample] = error
    return ImageFacts(tuple(looked), tuple(sizes), dict(formats), grey, damaged, digests, turned)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of an image file; raise DataError naming it if it cannot be read."""
    try:
        return sha256_of(path)
    except OSError as error:
        raise DataError(f"image {path} cannot be read: {error.strerror}.") from error


def same_files(facts: Iterable[ImageFacts]) -> list[tuple[Sample, ...]]:
    """Return the groups of files with the same bytes, within and across domains, sorted by the first file's name."""
    by_digest: dict[str, list[Sample]] = {}
    for found in facts:
        for sample, digest in found.digests.items():
            by_digest.setdefault(digest, []).append(sample)
    groups = [tuple(sorted(group, key=lambda one: one.file)) for group in by_digest.values() if len(group) > 1]
    return sorted(groups, key=lambda group: group[0].file)


def domains_of(samples: Sequence[Sample]) -> set[str]:
    """Return the domains in whose folders the images are."""
    return {sample.file.partition("/")[0] for sample in samples}


def labels_of(samples: Sequence[Sample]) -> set[int]:
    """Return the labels of the images."""
    return {sample.label for sample in samples}
