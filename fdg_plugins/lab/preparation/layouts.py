# SPDX-License-Identifier: Apache-2.0
"""Which files of a download become which files of a data set, by its published layouts.

Published archives hold ``<any folders>/<domain>/<class>/<image>`` with their own domain names; VLCS also comes as
``<domain>/<train, crossval or test>/<class number>/<image>``. The retinal vessels are recognised by their published
file names, wherever the files lie: each group has its own; masks are those of each group's first observer.

The Caltech camera traps are published as images in one folder, and annotations in COCO format that label them.
Reference: Gulrajani, Lopez-Paz, "In Search of Lost Domain Generalization" (DomainBed), ICLR 2021, which selected these
places and species: an image goes into the folder of its place and of each species in its annotations.
Differences: DomainBed stops at a missing image; here, missing images are counted and omitted.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from fdg_plugins.data.catalogue import files_of, origin_of, published_as
from fdg_plugins.data.decoding import FORMATS, read_image
from fdg_plugins.data.folders import PARTS
from fdg_plugins.data.pairs import PAIR_SUFFIXES, stem_of
from fdg_plugins.data.specs import (
    IMAGE_SUFFIXES,
    AttributeSpec,
    ImageFolderSpec,
    KnownSpec,
    PublishedSpec,
    RotatedSpec,
    SegmentationSpec,
    without_suffix,
)
from fdg_plugins.data.stand_in import MARKER
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.sources import PACKED, Source
from fdg_plugins.storage import parse_json

_SPLITS = ("train", "crossval", "test")
_UNION = "full"  # in VLCS, the images of train/ and crossval/ again, named <train or crossval>_<file>
_DOTTED = ".idx"  # in another spelling of the names of MNIST's files: train-images.idx3-ubyte

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


class Plan(NamedTuple):
    """The files to write, each target once, and the files of the source that do not belong to the data set."""

    items: tuple[Item, ...]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def make_plan(spec: KnownSpec, source: Source, target: Path) -> Plan:
    """Return the plan that copies ``source`` to ``target``, the data set's folder.

    Raises DataError if the source holds nothing of the data set, holds drawings of the stand-in, has two files for
    the same image, or holds inconsistent lists.
    """
    remarks: list[str] = []
    items = _found(spec, source, remarks)
    if not items or any(_name(file) == MARKER for file in source.files):
        expected = f"<domain>/{spec.layout} ({', '.join(spec.domains)}), or {origin_of(spec.name).obtain}"
        raise DataError(f"source {source.name} holds nothing of {spec.title}, or is its STAND-IN; expected {expected}.")
    if isinstance(spec, ImageFolderSpec):  # the official lists, except those in a place where the loader finds them
        pattern = re.compile(f"({'|'.join(spec.domains)})_(train|crossval|test)_kfold.txt")
        lists = [(file, path) for file, path in source.files.items() if pattern.fullmatch(path.name)]
        items += [Item(file, f"splits/{path.name}") for file, path in lists if not path.is_relative_to(target)]
    used = {item.source for item in items}
    left_out = tuple(file for file in source.files if file not in used)
    return Plan(_each_once(items, source, target), left_out, tuple(remarks))


def _found(spec: KnownSpec, source: Source, remarks: list[str]) -> list[Item]:
    """Return the items for what the source has of a data set; add what a user should know to the ``remarks``."""
    if isinstance(spec, RotatedSpec | PublishedSpec):
        places = {_name(file): file.removeprefix(f"{spec.folder}/") for file in files_of(spec)}
        names = {file: _name(file).removesuffix(PACKED).replace(_DOTTED, "-idx") for file in source.files}
        return [Item(file, places[name]) for file, name in names.items() if name in places]
    if isinstance(spec, AttributeSpec):
        lists = (spec.attribute_list, spec.part_list)
        items = [Item(file, _name(file)) for file in source.files if _name(file) in lists]
        images = (file for file in source.files if file.split("/")[-2:-1] == [spec.image_folder])
        return [*items, *(Item(file, f"{spec.image_folder}/{_name(file)}") for file in images)]
    if isinstance(spec, SegmentationSpec):
        return mask_items(spec, source, remarks)
    items = list(_sorted_images(spec, source.files))
    if spec.name == "terraincognita" and not items:
        return _annotated_images(spec, source, remarks)
    return _only_listed(spec, source, items, remarks) if spec.name.startswith("domainnet") else items


def _name(file: str) -> str:
    return file.rpartition("/")[2]


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _sorted_images(spec: ImageFolderSpec, files: Iterable[str]) -> Iterator[Item]:
    domains = {_plain(domain): domain for domain in spec.domains}
    classes = {_plain(name): name for name in spec.classes}
    if spec.name == "vlcs":  # also published under other names of domains, and numbers for classes
        domains |= {"caltech": "caltech101", "sun": "sun09", "pascal": "voc2007"}
        classes |= {str(number): name for number, name in enumerate(spec.classes)}
    for file in files:
        *folders, name = file.split("/")
        if len(folders) < 2 or not name.lower().endswith(IMAGE_SUFFIXES):
            continue
        part = folders[-2].lower()
        is_part = len(folders) > 2 and part in (*_SPLITS, _UNION)
        domain = domains.get(_plain(folders[-3 if is_part else -2]))
        class_name = classes.get(_plain(folders[-1]))
        if domain and class_name:
            # The name of the part comes before it, where images of several parts come together.
            prefix = f"{part}_" if is_part and part in _SPLITS and not name.startswith(f"{part}_") else ""
            yield Item(file, f"{domain}/{class_name}/{prefix}{name}")


def _annotated_images(spec: ImageFolderSpec, source: Source, remarks: list[str]) -> list[Item]:
    images = {_name(file): file for file in source.files if file.lower().endswith(IMAGE_SUFFIXES)}
    chosen: set[tuple[str, str]] = set()
    for file in (file for file in source.files if file.lower().endswith(".json")):
        content = parse_json(source.read(file), f"file of annotations {file} in {source.name}")
        try:
            chosen |= set(_chosen(content, spec))
        except (AttributeError, KeyError, TypeError) as error:
            raise DataError(f"annotations {file} in {source.name} lack or misplace {error}.") from error
    if missing := len({name for _, name in chosen} - images.keys()):
        remarks.append(f"{missing:,} annotated images are not in the source")
    return [Item(images[name], f"{folder}/{name}") for folder, name in sorted(chosen) if name in images]


def _chosen(content: Any, spec: ImageFolderSpec) -> Iterator[tuple[str, str]]:
    if not isinstance(content, dict) or not {"images", "annotations", "categories"} <= content.keys():
        return
    names = {category["id"]: category["name"] for category in content["categories"]}
    images = {image["id"]: (f"location_{image['location']}", image["file_name"]) for image in content["images"]}
    for annotation in content["annotations"]:
        domain, file = images.get(annotation["image_id"], ("", ""))
        if domain in spec.domains and (class_name := names[annotation["category_id"]]) in spec.classes:
            yield f"{domain}/{class_name}", _name(file)


def _only_listed(spec: ImageFolderSpec, source: Source, items: list[Item], remarks: list[str]) -> list[Item]:
    """Keep, of each domain with DomainNet's lists, the images that they name: those of the cleaned release."""
    for domain in spec.domains:
        lists = [file for file in source.files if _name(file) in (f"{domain}_train.txt", f"{domain}_test.txt")]
        if not lists:
            continue
        lines = [line for file in lists for line in source.read(file).decode("utf-8-sig", "replace").splitlines()]
        listed = {line.strip().rpartition(" ")[0] for line in lines}  # clipart/bird/clipart_027_000001.jpg 31
        items = [item for item in items if not item.target.startswith(f"{domain}/") or _end(item.source) in listed]
        wanted = {path for path in listed if path.split("/")[1:2] and path.split("/")[1] in spec.classes}
        missing = len(wanted - {_end(item.source) for item in items})
        lacking = f", of which {missing:,} are not in the source" if missing else ""
        remarks.append(f"{domain}: the images that its lists name ({len(wanted):,}){lacking}")
    return items


def _end(path: str) -> str:
    return "/".join(path.split("/")[-3:])


def _each_once(items: Iterable[Item], source: Source, target: Path) -> tuple[Item, ...]:
    """Return one item per target, preferring a file already in place, then any other, then a packed or second copy."""

    def rank(item: Item) -> int:
        is_second = item.packed or _DOTTED in item.source or _UNION in item.source.lower().split("/")[-3:]
        return 0 if source.files[item.source] == target / item.target else 1 + is_second

    chosen: dict[str, Item] = {}
    for item in items:
        known = chosen.setdefault(item.target, item)
        if rank(known) == rank(item) and known.source != item.source:
            raise DataError(
                f"source {source.name} has two files for {item.target}: {known.source} and {item.source}; expected one."
            )
        chosen[item.target] = min(known, item, key=rank)
    return tuple(chosen.values())


# --- images with masks ---


_Files = dict[str, list[str]]
"""Images or masks of a domain by the key of a pair; a key may have a packed and an unpacked file."""


def mask_items(spec: SegmentationSpec, source: Source, remarks: list[str]) -> list[Item]:
    """Return the items that make pairs of the files in ``source``; add to the ``remarks`` what is left out.

    Reads the prepared layout ``<domain>/{images,masks}/``, and the vessels as published.
    """
    items: list[Item] = []
    absent: list[str] = []
    for domain in spec.domains:
        made = published_as(spec.name, domain)
        images, masks = (_by_key(source, rf"(?:.*/)?{re.escape(domain)}/{part}/([^/]+)", _stem) for part in PARTS)
        if made and not (images and masks):
            images, masks = (_by_key(source, f"(?:.*/)?{made[part]}", str.lower) for part in PARTS)
            lacking = images.keys() - masks.keys()
            unmarked = [key for key in lacking if re.fullmatch(made["may_lack"], _name(images[key][0]), re.IGNORECASE)]
            if unmarked and len(unmarked) < len(images):
                images = {key: files for key, files in images.items() if key not in unmarked}
                remarks.append(f"{domain}: images that are published without a mask, left out: {len(unmarked):,}")
        if not (images or masks):
            absent.append(f"{domain} ({made['download']})" if made else domain)
        items += _converted(images, masks, domain) if made else _as_they_are(images, masks, domain)
    if absent:
        remarks.append(f"not in the source: {', '.join(absent)}")
    return items


def _by_key(source: Source, pattern: str, key: Callable[[str], str]) -> _Files:
    found: _Files = {}
    for file in source.files:
        if match := re.fullmatch(pattern, file, re.IGNORECASE):
            found.setdefault(key(match[1]), []).append(file)
    return found


def _converted(images: _Files, masks: _Files, domain: str) -> Iterator[Item]:
    """Yield the items of published files: images without loss as PNG unless they are JPEG or PNG, masks as PNG."""
    for key in images | masks:
        stem = _stem(_name((images.get(key) or masks[key])[0]).removesuffix(PACKED))
        for file in images.get(key, ()):
            suffix = PurePosixPath(file.lower().removesuffix(PACKED)).suffix
            is_kept = suffix in _COPIED
            target = f"{domain}/{IMAGES}/{stem}{suffix if is_kept else '.png'}"
            yield Item(file, target, None if is_kept else as_png)
        for file in masks.get(key, ()):
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
