# SPDX-License-Identifier: Apache-2.0
"""Map images and masks of a source to ``<domain>/{images,masks}/`` with equal stems, as PNG where readers need it.

The retinal vessels are recognised by their published file names, wherever the files lie: each group has its own names,
formats and observers. Masks are those of each group's first observer.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from fdg_plugins.data.catalogue import VESSELS
from fdg_plugins.data.decoding import FORMATS, read_image
from fdg_plugins.data.pairs import PAIR_SUFFIXES, PARTS, stem_of
from fdg_plugins.data.specs import SegmentationSpec, without_suffix
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.sources import Source

PACKED = ".gz"
MOST_GREY = 0.01
"""The largest fraction of a mask's pixels that may be neither black nor white; a photograph has more."""

_COPIED = (".jpg", ".jpeg", ".png")  # all other images become PNG
IMAGES, MASKS = PARTS


@dataclass(frozen=True)
class Item:
    """One file to create: ``target`` is its path below the data set's folder.

    If ``packed``, the source's file is gunzipped. ``convert`` then makes the content of the target from it, given also
    a name of the file for errors; None: the content is copied.
    """

    source: str
    target: str
    packed: bool = False
    convert: Callable[[bytes, str], bytes] | None = None

    @property
    def is_copied(self) -> bool:
        """Whether the target has the bytes of the source's file."""
        return not self.packed and self.convert is None


@dataclass(frozen=True)
class Published:
    """One domain as published: what to download, and how images and the first observer's masks are named.

    Both patterns match whole file names and capture the key that an image shares with its mask. Images that match
    ``may_lack`` are published without a mask too, and are then left out.
    """

    download: str
    image: str
    mask: str
    example: str
    may_lack: str = ""


VESSELS_PUBLISHED: Mapping[str, Published] = {
    "chase_db1": Published(
        "CHASEDB1.zip",
        r"image_(\d\d[lr])\.jpg",
        r"image_(\d\d[lr])_1stHO\.png",
        "Image_01L.jpg and Image_01L_1stHO.png",
    ),
    "drive": Published(
        "training.zip and test.zip, or DRIVE.zip",
        r"(\d\d)_(?:training|test)\.tif",
        r"(\d\d)_manual1\.(?:gif|tif|png)",
        "images/21_training.tif and 1st_manual/21_manual1.gif",
        may_lack=r"\d\d_test\.tif",
    ),
    "hrf": Published(
        "all.zip", r"(\d\d_(?:dr|g|h))\.jpe?g", r"(\d\d_(?:dr|g|h))\.tif", "images/01_dr.JPG and manual1/01_dr.tif"
    ),
    "stare": Published(
        "stare-images.tar and labels-ah.tar",
        r"(im\d{4})\.ppm(?:\.gz)?",
        r"(im\d{4})\.ah\.ppm(?:\.gz)?",
        "im0001.ppm.gz and im0001.ah.ppm.gz",
        may_lack=r"im\d{4}\.ppm(?:\.gz)?",
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
        made = VESSELS_PUBLISHED.get(domain) if spec.name == VESSELS.name else None
        if found := _prepared(source, domain):
            _check_paired(found, source, domain, f"{IMAGES}/<stem>.* and {MASKS}/<stem>.*")
        elif made and (found := _as_published(source, made)):
            remarks += _without_unmarked(found, domain, made)
            _check_paired(found, source, domain, made.example)
        else:
            absent.append(f"{domain} ({made.download})" if made else domain)
            continue
        items += _converted(found, domain) if made else _as_they_are(found, domain)
    if items and absent:
        remarks.append(f"not in the source: {', '.join(absent)}")
    return items, tuple(remarks)


def expected_pairs(spec: SegmentationSpec) -> str:
    """Return the expected layout of a source of the data set, for an error message."""
    made = VESSELS_PUBLISHED.values() if spec.name == VESSELS.name else ()
    layout = f"<domain>/{{{IMAGES},{MASKS}}}/ with the domains {', '.join(spec.domains)}"
    return "; or ".join([*(f"{one.download} ({one.example})" for one in made), layout])


def _prepared(source: Source, domain: str) -> _Found | None:
    """Return the files in ``<domain>/images/`` and ``<domain>/masks/`` by stem, None unless both have some."""
    found = _Found()
    for file in source.files:
        name = PurePosixPath(file).name
        for folder, kind in ((IMAGES, found.images), (MASKS, found.masks)):
            if f"/{file}".endswith(f"/{domain}/{folder}/{name}"):
                kind.setdefault(_stem(name), []).append(file)
    return found if found.images and found.masks else None


def _as_published(source: Source, made: Published) -> _Found | None:
    """Return the files whose names are those of a published domain, None if there is no image and no mask."""
    found = _Found()
    for file in source.files:
        for pattern, kind in ((made.image, found.images), (made.mask, found.masks)):
            if match := re.fullmatch(pattern, PurePosixPath(file).name, re.IGNORECASE):
                kind.setdefault(match[1].lower(), []).append(file)
    return found if found.images or found.masks else None


def _without_unmarked(found: _Found, domain: str, made: Published) -> Iterator[str]:
    """Take the images out of ``found`` that are published without mask, if any has one; yield a remark on them."""
    unmarked = [
        key
        for key, files in found.images.items()
        if key not in found.masks and re.fullmatch(made.may_lack, PurePosixPath(files[0]).name, re.IGNORECASE)
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
            suffix = PurePosixPath(file.lower().removesuffix(PACKED)).suffix
            is_kept = suffix in _COPIED
            target = f"{domain}/{IMAGES}/{stem}{suffix if is_kept else '.png'}"
            yield Item(file, target, file.lower().endswith(PACKED), None if is_kept else as_png)
        for file in found.masks[key]:
            yield Item(file, f"{domain}/{MASKS}/{stem}.png", file.lower().endswith(PACKED), as_mask)


def _as_they_are(found: _Found, domain: str) -> Iterator[Item]:
    for folder, kind in ((IMAGES, found.images), (MASKS, found.masks)):
        for file in (file for files in kind.values() for file in files):
            yield Item(file, f"{domain}/{folder}/{PurePosixPath(file).name}")


def _stem(name: str) -> str:
    return stem_of(name) if name.lower().endswith(PAIR_SUFFIXES) else without_suffix(name)


def as_png(content: bytes, name: str) -> bytes:
    """Return the image in ``content``, of any published format, as PNG in RGB with the same pixels.

    Raises DataError, naming ``name``, if it is damaged or too large.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of odd TIFF tags; what it cannot decode, it refuses
        return _png(read_image(Path(name), content=content, formats=(*FORMATS, "PPM")))


def as_mask(content: bytes, name: str) -> bytes:
    """Return the mask in ``content`` as 8-bit grey PNG, 255 where it exceeds half of its largest value and 0 elsewhere.

    Raises DataError, naming ``name``, if it is damaged, empty, or has more than two values.
    """
    with Image.open(io.BytesIO(as_png(content, name))) as image:
        pixels = np.asarray(image.convert("L"))
    largest = int(pixels.max())
    grey = float(np.mean((pixels > 0) & (pixels < largest)))
    if largest == 0 or grey > MOST_GREY:
        raise DataError(
            f"mask {name} marks no pixel, or has a fraction of {grey:.2f} of its pixels between its smallest and "
            "largest value; expected a mask of two values."
        )
    return _png(Image.fromarray(np.where(pixels > largest / 2, 255, 0).astype(np.uint8)))


def _png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()
