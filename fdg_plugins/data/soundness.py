# SPDX-License-Identifier: Apache-2.0
"""Which images of a domain cannot be used: every one is decoded before a run, so that none ends a round of it.

Damaged is what Pillow refuses to decode: an empty or truncated file, one that is no image, most garbled ones. A JPEG
whose middle was garbled may still be decoded, to wrong pixels, as by any viewer; then it counts as sound.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from fdg_plugins.data.decoding import FORMATS, TooLargeError, check_image
from fdg_plugins.data.domains import DomainData
from fdg_plugins.data.image_files import ImageFiles
from fdg_plugins.errors import DataError

SHOWN = 10
"""Files that a sentence names; the others it counts."""


@dataclass(frozen=True)
class Damaged:
    """Files, as samples name them, that cannot be read, and files with more pixels than may be opened."""

    unreadable: tuple[str, ...] = ()
    too_large: tuple[str, ...] = ()

    @property
    def files(self) -> frozenset[str]:
        """All of them."""
        return frozenset((*self.unreadable, *self.too_large))


def find_damaged(data: DomainData, sound: Collection[str] = ()) -> Damaged:
    """Return the images of ``data`` that cannot be used, after decoding all of them but those known to be ``sound``."""
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
    """Decode every image file of ``data`` once; DataError that counts those that cannot be used, and names some."""
    if (damaged := find_damaged(data)).files:
        raise _refusal(data, damaged)


def without_damaged(data: DomainData, reopen: Callable[[frozenset[str]], DomainData]) -> tuple[DomainData, Damaged]:
    """Return the domain without the images that cannot be used, each one decoded once; and which these are.

    ``reopen`` returns the domain without the files that it is given. A domain that was thinned may then hold others,
    which are looked at in turn.
    """
    sound: set[str] = set()
    found = Damaged()
    while (more := find_damaged(data, sound)).files:
        sound.update(set(_files(data)) - more.files)
        found = Damaged((*found.unreadable, *more.unreadable), (*found.too_large, *more.too_large))
        data = reopen(found.files)
    return data, found


def name_some(files: Iterable[str]) -> str:
    """Return the first files by name, and how many more there are."""
    names = sorted(files)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _files(data: DomainData) -> list[str]:
    return list(dict.fromkeys(sample.file for sample in (*data.train, *data.validation, *data.test)))


def _refusal(data: DomainData, damaged: Damaged) -> DataError:
    """Return the error on images that cannot be used: their names for the site's own log, their number for others."""
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
