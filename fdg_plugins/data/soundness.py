# SPDX-License-Identifier: Apache-2.0
"""Find the unusable images of a domain: every image is decoded before a run, so that none makes a round fail.

An image is damaged if Pillow refuses to decode it: an empty or truncated file, a file that is not an image, most
garbled files. A JPEG with a garbled middle may still be decoded, to wrong pixels, as in any viewer; it counts as sound.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from fdg_plugins.data.decoding import FORMATS, TooLargeError, check_image
from fdg_plugins.data.domains import DomainData
from fdg_plugins.data.image_files import ImageFiles
from fdg_plugins.errors import DataError

SHOWN = 10
"""The number of files that a sentence names; it counts the others."""


@dataclass(frozen=True)
class Damaged:
    """Files, named as samples name them, that cannot be read, and files with more than the allowed number of pixels."""

    unreadable: tuple[str, ...] = ()
    too_large: tuple[str, ...] = ()

    @property
    def files(self) -> frozenset[str]:
        """All damaged files."""
        return frozenset((*self.unreadable, *self.too_large))


def find_damaged(data: DomainData, sound: Collection[str] = ()) -> Damaged:
    """Decode all images of ``data`` except those known to be ``sound``; return those that cannot be used."""
    if not isinstance(data.images, ImageFiles):
        return Damaged()  # read as a whole when the domain was opened
    unreadable, too_large = [], []
    for file in _files(data):
        if file in sound:
            continue
        try:
            check_image(data.images.folder / file, data.images.max_pixels)
        except TooLargeError:
            too_large.append(file)
        except DataError:
            unreadable.append(file)
    return Damaged(tuple(unreadable), tuple(too_large))


def check_images(data: DomainData) -> None:
    """Decode every image file of ``data`` once; raise DataError if any cannot be used, with their number and names."""
    if (damaged := find_damaged(data)).files:
        raise _refusal(data, damaged)


def without_damaged(data: DomainData, reopen: Callable[[frozenset[str]], DomainData]) -> tuple[DomainData, Damaged]:
    """Return the domain without the images that cannot be used, and those images; each image is decoded once.

    ``reopen`` returns the domain without the given files. A subsampled domain may then contain other images, which
    are checked in turn.
    """
    sound: set[str] = set()
    found = Damaged()
    while (more := find_damaged(data, sound)).files:
        sound.update(set(_files(data)) - more.files)
        found = Damaged((*found.unreadable, *more.unreadable), (*found.too_large, *more.too_large))
        data = reopen(found.files)
    return data, found


def name_some(files: Iterable[str]) -> str:
    """Return the names of the first ``SHOWN`` files, and the number of the others."""
    names = sorted(files)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _files(data: DomainData) -> list[str]:
    return list(dict.fromkeys(sample.file for sample in (*data.train, *data.validation, *data.test)))


def _refusal(data: DomainData, damaged: Damaged) -> DataError:
    """Return the error for unusable images: with their names for the site's own log, only counted in public."""
    folder = data.images.folder if isinstance(data.images, ImageFiles) else ""
    counts, texts = [], []
    for files, what in ((damaged.unreadable, "cannot be read"), (damaged.too_large, "with too many pixels")):
        if files:
            counts.append(f"{len(files):,} {what}")
            texts.append(f"{len(files):,} {what} ({name_some(files)})")
    of_domain = f"of the images of domain {data.domain!r}"
    return DataError(
        f"{of_domain} in {folder}, {' and '.join(texts)}; expected undamaged {', '.join(FORMATS)} files, or "
        "damaged_images 'leave_out' in the site's config.",
        public=f"{of_domain}, {' and '.join(counts)}.",
    )
