# SPDX-License-Identifier: Apache-2.0
"""Map images and masks of a source to ``<domain>/{images,masks}/`` with equal stems.

The retinal vessels are recognised by their published file names, wherever the files lie: each group has its own names,
formats and observers. Masks are those of each group's first observer.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from fdg_plugins.data.catalogue import VESSELS
from fdg_plugins.data.pair_names import PAIR_SUFFIXES, stem_of
from fdg_plugins.data.pairs import PARTS
from fdg_plugins.data.specs import SegmentationSpec, without_suffix
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.items import Item
from fdg_plugins.lab.preparation.pictures import as_mask, as_png
from fdg_plugins.lab.preparation.sources import Source

PACKED = ".gz"
_COPIED = (".jpg", ".jpeg", ".png")  # all other images become PNG
IMAGES, MASKS = PARTS


@dataclass(frozen=True)
class Published:
    """One domain as published: what to download, and how images and the first observer's masks are named.

    Both patterns match whole file names and capture the key that an image shares with its mask. Images that match
    ``may_lack`` are published without a mask too, and are then left out.
    """

    download: str
    image: re.Pattern[str]
    mask: re.Pattern[str]
    example: str
    observer: str
    may_lack: re.Pattern[str] | None = None


def _named(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


VESSELS_PUBLISHED: Mapping[str, Published] = {
    "chase_db1": Published(
        "CHASEDB1.zip",
        _named(r"image_(\d\d[lr])\.jpg"),
        _named(r"image_(\d\d[lr])_1stHO\.png"),
        "Image_01L.jpg and Image_01L_1stHO.png",
        "first observer (1stHO)",
    ),
    "drive": Published(
        "training.zip and test.zip, or DRIVE.zip",
        _named(r"(\d\d)_(?:training|test)\.tif"),
        _named(r"(\d\d)_manual1\.(?:gif|tif|png)"),
        "images/21_training.tif and 1st_manual/21_manual1.gif",
        "first observer (1st_manual)",
        may_lack=_named(r"\d\d_test\.tif"),
    ),
    "hrf": Published(
        "all.zip",
        _named(r"(\d\d_(?:dr|g|h))\.jpe?g"),
        _named(r"(\d\d_(?:dr|g|h))\.tif"),
        "images/01_dr.JPG and manual1/01_dr.tif",
        "group's only annotation (manual1)",
    ),
    "stare": Published(
        "stare-images.tar and labels-ah.tar",
        _named(r"(im\d{4})\.ppm(?:\.gz)?"),
        _named(r"(im\d{4})\.ah\.ppm(?:\.gz)?"),
        "im0001.ppm.gz and im0001.ah.ppm.gz",
        "first observer (ah)",
        may_lack=_named(r"im\d{4}\.ppm(?:\.gz)?"),
    ),
}


@dataclass
class _Found:
    """The images and the masks of a domain by their common key; a key may have a packed and an unpacked file."""

    images: dict[str, list[str]] = field(default_factory=dict)
    masks: dict[str, list[str]] = field(default_factory=dict)


def mask_items(spec: SegmentationSpec, source: Source) -> tuple[list[Item], tuple[str, ...]]:
    """Return the items that make pairs of the files in ``source``, none if it holds nothing of ``spec``, and remarks.

    Reads the prepared layout ``<domain>/{images,masks}/``, and the vessels as published. Raises DataError, naming the
    file, for an image without mask or a mask without image.
    """
    items: list[Item] = []
    remarks: list[str] = []
    absent: list[str] = []
    for domain in spec.domains:
        made = _published(spec).get(domain)
        if found := _prepared(source, domain):
            _check_paired(found, source, domain, f"{IMAGES}/<stem>.* and {MASKS}/<stem>.*")
        elif made and (found := _as_published(source, made)):
            remarks += _without_unmarked(found, domain, made)
            _check_paired(found, source, domain, made.example)
            remarks.append(f"{domain}: masks of the {made.observer}")
        else:
            absent.append(f"{domain} ({made.download})" if made else domain)
            continue
        items += _converted(found, domain) if made else _as_they_are(found, domain)
    if items and absent:
        remarks.append(f"not in the source: {', '.join(absent)}")
    return items, tuple(remarks)


def expected_pairs(spec: SegmentationSpec) -> str:
    """Return the expected layout of a source of the data set, for an error message."""
    published = [f"{made.download} ({made.example})" for made in _published(spec).values()]
    return "; or ".join([*published, f"<domain>/{{{IMAGES},{MASKS}}}/ with the domains {', '.join(spec.domains)}"])


def _published(spec: SegmentationSpec) -> Mapping[str, Published]:
    return VESSELS_PUBLISHED if spec.name == VESSELS.name else {}


def _prepared(source: Source, domain: str) -> _Found | None:
    """Return the files in ``<domain>/images/`` and ``<domain>/masks/`` by stem, None unless both have some."""
    found = _Found()
    for file in source.files:
        for folder, kind in ((IMAGES, found.images), (MASKS, found.masks)):
            if f"/{file}".endswith(f"/{domain}/{folder}/{(name := PurePosixPath(file).name)}"):
                kind.setdefault(_stem(name), []).append(file)
    return found if found.images and found.masks else None


def _as_published(source: Source, made: Published) -> _Found | None:
    """Return the files whose names are those of a published domain, None if there is no image and no mask."""
    found = _Found()
    for file in source.files:
        for pattern, kind in ((made.image, found.images), (made.mask, found.masks)):
            if match := pattern.fullmatch(PurePosixPath(file).name):
                kind.setdefault(match[1].lower(), []).append(file)
    return found if found.images or found.masks else None


def _without_unmarked(found: _Found, domain: str, made: Published) -> Iterator[str]:
    """Take the images out of ``found`` that are published without mask, if any has one; yield a remark on them."""
    unmarked = [
        key
        for key, files in found.images.items()
        if made.may_lack and key not in found.masks and made.may_lack.fullmatch(PurePosixPath(files[0]).name)
    ]
    if unmarked and len(unmarked) < len(found.images):
        for key in unmarked:
            del found.images[key]
        yield f"{domain}: images that are published without a mask, left out: {len(unmarked):,}"


def _check_paired(found: _Found, source: Source, domain: str, expected: str) -> None:
    for these, others, what, other in (
        (found.images, found.masks, "images", "mask"),
        (found.masks, found.images, "masks", "image"),
    ):
        if single := sorted(these.keys() - others.keys()):
            raise DataError(
                f"source {source.name}: {len(single):,} of {len(these):,} {what} of domain {domain} have no {other}, "
                f"{these[single[0]][0]} among them; expected pairs such as {expected}."
            )


def _converted(found: _Found, domain: str) -> Iterator[Item]:
    """Yield the items of published files: images without loss as PNG unless they are JPEG or PNG, masks as PNG."""
    for key, files in found.images.items():
        stem = _stem(PurePosixPath(files[0]).name.removesuffix(PACKED))
        for file in files:
            suffix = _suffix(file)
            is_kept = suffix in _COPIED
            target = f"{domain}/{IMAGES}/{stem}{suffix if is_kept else '.png'}"
            yield Item(file, target, _is_packed(file), None if is_kept else as_png)
        for file in found.masks[key]:
            yield Item(file, f"{domain}/{MASKS}/{stem}.png", _is_packed(file), as_mask)


def _as_they_are(found: _Found, domain: str) -> Iterator[Item]:
    for folder, kind in ((IMAGES, found.images), (MASKS, found.masks)):
        for file in (file for files in kind.values() for file in files):
            yield Item(file, f"{domain}/{folder}/{PurePosixPath(file).name}")


def _stem(name: str) -> str:
    """Return a file name without its suffix, also that of a format which is converted."""
    return stem_of(name) if name.lower().endswith(PAIR_SUFFIXES) else without_suffix(name)


def _suffix(file: str) -> str:
    return PurePosixPath(file.lower().removesuffix(PACKED)).suffix


def _is_packed(file: str) -> bool:
    return file.lower().endswith(PACKED)
