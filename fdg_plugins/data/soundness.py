# SPDX-License-Identifier: Apache-2.0
"""Damaged images of a domain: found by decoding all of them, and either refused with their number, or left out.

An image is damaged if Pillow, or nibabel, refuses to decode it: an empty or truncated file, a file that is not an
image, most garbled files; a mask is decoded with its image. A JPEG with a garbled middle may still be decoded, to wrong
pixels, as in any viewer; it counts as sound.
"""

from collections.abc import Callable, Collection

from fdg_plugins.data.decoding import DamagedError
from fdg_plugins.data.domains import DomainData
from fdg_plugins.data.specs import Sample
from fdg_plugins.errors import DataError

Poll = Callable[[], None]

SHOWN = 10
"""The number of files that a sentence names."""


def unpolled() -> None:
    """Do nothing: who decodes cannot be stopped."""


def find_damaged(data: DomainData, sound: Collection[str] = (), poll: Poll = unpolled) -> dict[str, str]:
    """Decode all images of ``data`` except those known to be ``sound``; return why which cannot be used, by file.

    ``poll`` is called before each image; what it raises ends the search.
    """
    damaged = {}
    for file, sample in _samples(data).items():
        if file in sound:
            continue
        poll()
        try:
            data.images.check(sample)
        except DamagedError as error:
            damaged[file] = error.reason
    return damaged


def check_images(data: DomainData, sound: set[str] | None = None, poll: Poll = unpolled) -> None:
    """Decode every image file of ``data`` once; raise DataError if any cannot be used, with their number and names.

    Images known to be ``sound`` are left out; the others join them if all can be used. ``poll``: as in
    :func:`find_damaged`.
    """
    if damaged := find_damaged(data, sound or (), poll):
        problem = f"of the images of domain {data.domain!r}, {len(damaged):,} cannot be used"
        reasons = "; ".join(f"{file} {damaged[file]}" for file in sorted(damaged)[:SHOWN])
        raise DataError(
            f"{problem} ({reasons}), in {data.images.location}; expected undamaged {', '.join(data.images.formats)} "
            "files, or damaged_images 'leave_out' in the site's config.",
            public=f"{problem}.",
        )
    if sound is not None:
        sound.update(_samples(data))


def without_damaged(
    data: DomainData,
    reopen: Callable[[frozenset[str]], DomainData],
    sound: set[str] | None = None,
    poll: Poll = unpolled,
) -> tuple[DomainData, frozenset[str]]:
    """Return the domain without the images that cannot be used, and those images; each image is decoded once.

    ``reopen`` returns the domain without the given files. A subsampled domain may then contain other images, which
    are checked in turn. ``sound``: files that are known to be, to which those found are added. ``poll``: as in
    :func:`find_damaged`.
    """
    sound = set() if sound is None else sound
    found: frozenset[str] = frozenset()
    while more := find_damaged(data, sound, poll):
        sound.update(_samples(data).keys() - more.keys())
        found |= more.keys()
        data = reopen(found)
    sound.update(_samples(data))
    return data, found


def _samples(data: DomainData) -> dict[str, Sample]:
    return {sample.file: sample for sample in (*data.train, *data.validation, *data.test)}
