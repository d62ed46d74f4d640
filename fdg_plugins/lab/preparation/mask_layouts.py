# SPDX-License-Identifier: Apache-2.0
"""Which files of a download become images and masks: the prepared layout, and the retinal vessels as published.

The retinal vessels are recognised by their published file names, wherever the files lie: each group has its own names,
formats and observers. Masks are those of each group's first observer.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from PIL import Image

from fdg_plugins.data.catalogue import VESSELS
from fdg_plugins.data.decoding import FORMATS, read_image
from fdg_plugins.data.pairs import PAIR_SUFFIXES, PARTS, stem_of
from fdg_plugins.data.specs import SegmentationSpec, without_suffix
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.sources import PACKED, Source

MOST_GREY = 0.01
"""The largest fraction of a mask's pixels that may be neither black nor white; a photograph has more."""

_COPIED = (".jpg", ".jpeg", ".png")  # all other images become PNG
IMAGES, MASKS = PARTS


class Item(NamedTuple):
    """One file to create: ``target`` is its path below the data set's folder.

    ``convert`` makes the content of the target from that of the source, given also a name of the file for errors; None:
    the content is copied, after unpacking it if only the source ends with ``.gz``.
    """

    source: str
    target: str
    convert: Callable[[bytes, str], bytes] | None = None

    @property
    def packed(self) -> bool:
        """Whether the source's file is to be unpacked."""
        return self.source.lower().endswith(PACKED) and not self.target.lower().endswith(PACKED)

    def content(self, source: Source) -> bytes | None:
        """Return the content of the target; None if it is that of the source's file."""
        if not self.packed and self.convert is None:
            return None
        content = source.read(self.source, gunzip=self.packed)
        return self.convert(content, f"{self.source} in {source.name}") if self.convert else content


class Published(NamedTuple):
    """One domain as published: what to download, and how images and the first observer's masks are named.

    Both patterns match whole file names and capture the key that an image shares with its mask. Images that match
    ``may_lack`` are published without a mask too, and are then left out.
    """

    download: str
    image: str
    mask: str
    may_lack: str = ""


VESSELS_PUBLISHED: Mapping[str, Published] = {
    "chase_db1": Published("CHASEDB1.zip", r"image_(\d\d[lr])\.jpg", r"image_(\d\d[lr])_1stHO\.png"),
    "drive": Published(
        "training.zip and test.zip, or DRIVE.zip",
        r"(\d\d)_(?:training|test)\.tif",
        r"(\d\d)_manual1\.(?:gif|tif|png)",
        may_lack=r"\d\d_test\.tif",
    ),
    "hrf": Published("all.zip", r"(\d\d_(?:dr|g|h))\.jpe?g", r"(\d\d_(?:dr|g|h))\.tif"),
    "stare": Published(
        "stare-images.tar and labels-ah.tar",
        r"(im\d{4})\.ppm(?:\.gz)?",
        r"(im\d{4})\.ah\.ppm(?:\.gz)?",
        may_lack=r"im\d{4}\.ppm(?:\.gz)?",
    ),
}

_Files = dict[str, list[str]]
"""Images or masks of a domain by the key of a pair; a key may have a packed and an unpacked file."""


def mask_items(spec: SegmentationSpec, source: Source) -> tuple[list[Item], tuple[str, ...], str]:
    """Return the items that make pairs of the files in ``source``, remarks, and what is expected in a source.

    Reads the prepared layout ``<domain>/{images,masks}/``, and the vessels as published. Raises DataError, naming the
    file, for an image without mask or a mask without image.
    """
    items: list[Item] = []
    remarks: list[str] = []
    absent: list[str] = []
    published = VESSELS_PUBLISHED if spec.name == VESSELS.name else {}
    for domain in spec.domains:
        made = published.get(domain)
        images, masks = (_by_key(source, rf"(?:.*/)?{re.escape(domain)}/{part}/([^/]+)", _stem) for part in PARTS)
        if made is not None and not (images and masks):
            images, masks = (_by_key(source, f"(?:.*/)?{one}", str.lower) for one in (made.image, made.mask))
            lacking = images.keys() - masks.keys()
            unmarked = [key for key in lacking if re.fullmatch(made.may_lack, _name(images[key][0]), re.IGNORECASE)]
            if unmarked and len(unmarked) < len(images):
                images = {key: files for key, files in images.items() if key not in unmarked}
                remarks.append(f"{domain}: images that are published without a mask, left out: {len(unmarked):,}")
        if single := sorted(images.keys() ^ masks.keys()):
            file = (images.get(single[0]) or masks[single[0]])[0]
            problem = f"{len(single):,} images or masks of domain {domain} lack the other, such as {file}"
            raise DataError(f"source {source.name}: {problem}.")
        if not images:
            absent.append(f"{domain} ({made.download})" if made else domain)
        items += _converted(images, masks, domain) if made else _as_they_are(images, masks, domain)
    if absent:
        remarks.append(f"not in the source: {', '.join(absent)}")
    return items, tuple(remarks), f"<domain>/{{{IMAGES},{MASKS}}}/ of {', '.join(absent)}"


def _name(file: str) -> str:
    return PurePosixPath(file).name


def _by_key(source: Source, pattern: str, key: Callable[[str], str]) -> _Files:
    """Return the files whose paths match ``pattern``, by ``key`` of its group."""
    found: _Files = {}
    for file in source.files:
        if match := re.fullmatch(pattern, file, re.IGNORECASE):
            found.setdefault(key(match[1]), []).append(file)
    return found


def _converted(images: _Files, masks: _Files, domain: str) -> Iterator[Item]:
    """Yield the items of published files: images without loss as PNG unless they are JPEG or PNG, masks as PNG."""
    for key, files in images.items():
        stem = _stem(_name(files[0]).removesuffix(PACKED))
        for file in files:
            suffix = PurePosixPath(file.lower().removesuffix(PACKED)).suffix
            is_kept = suffix in _COPIED
            target = f"{domain}/{IMAGES}/{stem}{suffix if is_kept else '.png'}"
            yield Item(file, target, None if is_kept else as_png)
        for file in masks[key]:
            yield Item(file, f"{domain}/{MASKS}/{stem}.png", as_mask)


def _as_they_are(images: _Files, masks: _Files, domain: str) -> Iterator[Item]:
    for folder, kind in zip(PARTS, (images, masks), strict=True):
        for file in (file for files in kind.values() for file in files):
            yield Item(file, f"{domain}/{folder}/{_name(file)}")


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
        between = f"has a fraction of {grey:.2f} of its pixels between its smallest and largest value"
        raise DataError(f"mask {name} marks no pixel, or {between}; expected a mask of two values.")
    return _png(Image.fromarray(np.where(pixels > largest / 2, 255, 0).astype(np.uint8)))


def _png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()
