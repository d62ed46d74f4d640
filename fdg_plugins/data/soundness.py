# SPDX-License-Identifier: Apache-2.0
"""Find the unusable images of a domain: every image is decoded before a run, so that none makes a round fail.

An image is damaged if Pillow, or nibabel, refuses to decode it: an empty or truncated file, a file that is not an
image, most garbled files; a mask is decoded with its image. A JPEG with a garbled middle may still be decoded, to wrong
pixels, as in any viewer; it counts as sound.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fdg_plugins.data.decoding import TooLargeError, UnfitError
from fdg_plugins.data.domains import DomainData
from fdg_plugins.data.pair_reading import MaskError
from fdg_plugins.data.specs import Sample
from fdg_plugins.errors import DataError

Poll = Callable[[], None]

SHOWN = 10
"""The number of files that a sentence names; it counts the others."""


@dataclass(frozen=True)
class Damaged:
    """Images, named as samples name them: which cannot be read, have too many pixels, or a mask that does not fit, or
    do not fit themselves.

    ``masks`` and ``unfit`` map the last two to what mask or image have, and what was expected. An image whose mask
    cannot be read cannot be read either.
    """

    unreadable: tuple[str, ...] = ()
    too_large: tuple[str, ...] = ()
    masks: Mapping[str, str] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> frozenset[str]:
        """All damaged files."""
        return frozenset((*self.unreadable, *self.too_large, *self.masks, *self.unfit))

    def and_also(self, more: "Damaged") -> "Damaged":
        """Return the images of both."""
        return Damaged(
            (*self.unreadable, *more.unreadable),
            (*self.too_large, *more.too_large),
            {**self.masks, **more.masks},
            {**self.unfit, **more.unfit},
        )


def unpolled() -> None:
    """Do nothing: who decodes cannot be stopped."""


def find_damaged(data: DomainData, sound: Collection[str] = (), poll: Poll = unpolled) -> Damaged:
    """Decode all images of ``data`` except those known to be ``sound``; return those that cannot be used.

    ``poll`` is called before each image; what it raises ends the search.
    """
    unreadable: list[str] = []
    too_large: list[str] = []
    masks: dict[str, str] = {}
    unfit: dict[str, str] = {}
    for file, sample in _samples(data).items():
        if file in sound:
            continue
        poll()
        try:
            data.images.check(sample)
        except TooLargeError:
            too_large.append(file)
        except MaskError as error:
            masks[file] = error.reason
        except UnfitError as error:
            unfit[file] = error.reason
        except DataError:
            unreadable.append(file)
    return Damaged(tuple(unreadable), tuple(too_large), masks, unfit)


def check_images(data: DomainData, sound: set[str] | None = None, poll: Poll = unpolled) -> None:
    """Decode every image file of ``data`` once; raise DataError if any cannot be used, with their number and names.

    Images known to be ``sound`` are left out; the others join them if all can be used. ``poll``: as in
    :func:`find_damaged`.
    """
    if (damaged := find_damaged(data, sound or (), poll)).files:
        raise _refusal(data, damaged)
    if sound is not None:
        sound.update(_samples(data))


def without_damaged(
    data: DomainData,
    reopen: Callable[[frozenset[str]], DomainData],
    sound: set[str] | None = None,
    poll: Poll = unpolled,
) -> tuple[DomainData, Damaged]:
    """Return the domain without the images that cannot be used, and those images; each image is decoded once.

    ``reopen`` returns the domain without the given files. A subsampled domain may then contain other images, which
    are checked in turn. ``sound``: files that are known to be, to which those found are added. ``poll``: as in
    :func:`find_damaged`.
    """
    sound = set() if sound is None else sound
    found = Damaged()
    while (more := find_damaged(data, sound, poll)).files:
        sound.update(set(_samples(data)) - more.files)
        found = found.and_also(more)
        data = reopen(found.files)
    sound.update(_samples(data))
    return data, found


def name_some(files: Iterable[str]) -> str:
    """Return the names of the first ``SHOWN`` files, and the number of the others."""
    names = sorted(files)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _samples(data: DomainData) -> dict[str, Sample]:
    return {sample.file: sample for sample in (*data.train, *data.validation, *data.test)}


def _refusal(data: DomainData, damaged: Damaged) -> DataError:
    masks, unfit = (
        tuple(f"{file}: {reason}" for file, reason in reasons.items()) for reasons in (damaged.masks, damaged.unfit)
    )
    kinds = {
        "cannot be read": damaged.unreadable,
        "with too many pixels": damaged.too_large,
        "with a mask that does not fit": masks,
        "that do not fit": unfit,
    }
    counts = {what: f"{len(files):,} {what}" for what, files in kinds.items() if files}
    named = " and ".join(f"{count} ({name_some(kinds[what])})" for what, count in counts.items())
    of_domain = f"of the images of domain {data.domain!r}"
    formats = ", ".join(name for name in data.images.formats if name != "GIF")  # files ending in .gif are not listed
    return DataError(
        f"{of_domain} in {data.images.location}, {named}; expected undamaged {formats} files, or "
        "damaged_images 'leave_out' in the site's config.",
        public=f"{of_domain}, {' and '.join(counts.values())}.",
    )
