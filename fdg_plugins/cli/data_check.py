# SPDX-License-Identifier: Apache-2.0
"""``fdg data check``: look into the images of a data set, in numbers and in pictures."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from fdg_plugins.cli.console import make_table, say, show, warn
from fdg_plugins.data.decoding import DamagedError, read_image
from fdg_plugins.data.own_files import DatasetFile
from fdg_plugins.data.pairs import stem_of
from fdg_plugins.data.specs import ImageFolderSpec, KnownSpec, Sample, SegmentationSpec
from fdg_plugins.data.splits import split_of
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.checks import count_images, listing_of, track
from fdg_plugins.lab.preparation.facts import ImageFacts, likely_groups, look_at, read_pair
from fdg_plugins.lab.preparation.sheets import draw_sheet, mask_tiles
from fdg_plugins.storage import write_bytes
from fdg_plugins.tasks import TASKS

IN_A_ROW = 8
ON_A_SHEET = 6
TILE = 2.7  # inches
SHOWN = 10
NUMBERS = ("images", "pairs", "training", "validation", "unusable", "grey")

T = TypeVar("T")


class Place(NamedTuple):
    """A data set on this machine: its record, its resolved data root, and what its own file says about the images.

    ``max_pixels``: the pixels of the largest image that a site opens on this machine.
    """

    spec: KnownSpec
    root: Path
    rules: DatasetFile
    max_pixels: int


class Look(NamedTuple):
    """A domain: its images, those that can be used, why the others cannot, its row of the table, and remarks.

    ``is_short``: whether it can only be held out.
    """

    samples: Sequence[Sample]
    facts: Sequence[ImageFacts]
    damaged: Sequence[DamagedError]
    row: Mapping[str, str]
    remarks: Sequence[str]
    is_short: bool


def check_files(place: Place, sheets: Path | None) -> None:
    """Print the facts of every domain below the data root, and draw sheets of the images into ``sheets``.

    Raises DataError, after all domains, if some images cannot be used, or no run could start.
    """
    looks = {domain: _look(place, domain) for domain in count_images(place.root, place.spec, place.rules)}
    head = list(next(iter(looks.values())).row)
    show(make_table(("domain", *head), ((domain, *one.row.values()) for domain, one in looks.items()), NUMBERS))
    for domain, remark in ((domain, remark) for domain, one in looks.items() for remark in one.remarks):
        say(f"{domain}: {remark}")
    _show_duplicates((facts.digest, domain, facts.sample.file) for domain, one in looks.items() for facts in one.facts)
    for warning in _warnings(place, looks):
        warn(warning)
    for name, sheet in () if sheets is None else _sheets(place, looks, sheets):
        write_bytes(name, sheet)
        say(f"{name}: written")
    if damaged := [error for one in looks.values() for error in one.damaged]:
        say("\n".join(f"unusable    {error}" for error in damaged))
        raise DataError(f"{len(damaged):,} of the images cannot be used.")
    if short := [domain for domain, one in looks.items() if one.is_short]:
        text = f"no image to train or to validate on in {', '.join(short)}"
        if len(short) > 1:
            raise DataError(f"{text}: only one domain can be held out.")
        warn(f"{text}, which can only be held out.")


def _warnings(place: Place, looks: Mapping[str, Look]) -> Iterator[str]:
    spec, rules = place.spec, place.rules
    for path in (place.root / spec.folder).iterdir():
        if path.is_dir():
            rules.excludes(f"{path.name}/")
    if rules.idle:
        yield f"exclude names {', '.join(rules.idle)}, which no file matches; expected <domain>/<class>/<image>."
    if absent := [name for name in spec.domains if name not in looks]:
        yield f"no folder for {', '.join(absent)}; a run on this machine needs every domain."
    likely = [found for one in looks.values() if (found := likely_groups(one.samples, len(spec.classes)))]
    if likely and spec.described and rules.group is None:
        yield f"{likely[0]}: if it is a patient, slide or scene, say so in dataset.toml (group), or it leaks."
    held = Counter(group for one in looks.values() for group in {sample.group for sample in one.samples} - {""})
    if several := sorted(group for group, count in held.items() if count > 1):
        yield f"images of {rules.group} {several[0]}, among {len(several):,}, are in several domains."


def _look(place: Place, domain: str) -> Look:
    spec, listing = place.spec, listing_of(place.root, place.spec, domain, place.rules)
    assert listing is not None
    samples, split = listing.images, split_of(listing, spec, domain, seed=0)
    facts, damaged = list[ImageFacts](), list[DamagedError]()
    for sample in track(samples, f"decoding {domain}"):
        try:
            facts.append(look_at(place.root, spec, sample, place.max_pixels))
        except DamagedError as error:
            damaged.append(error)
    has_masks = isinstance(spec, SegmentationSpec)
    sides = (sorted({min(lengths), max(lengths)}) for lengths in zip(*(one.size for one in facts), strict=True))
    row = {
        "pairs" if has_masks else "images": f"{len(samples):,}",
        "training": f"{len(split.train):,}",
        "validation": f"{len(split.validation):,}",
        "unusable": f"{len(damaged):,}",
        "height x width" if spec.dims == 2 else "size": " x ".join(" to ".join(map(str, ends)) for ends in sides),
    }
    if listing.group is not None:
        row[listing.group] = f"{len({sample.group for sample in samples} - {''}):,}"
    counts = dict(zip(spec.classes, TASKS.get(spec.task).class_counts(samples, len(spec.classes)), strict=True))
    row |= _masks(spec, facts) if has_masks else ends_of(counts) | _photographs(facts)
    lacking, turned = [name for name, count in counts.items() if not count], sum(one.is_turned for one in facts)
    remarks = {
        f"{len(listing.skipped)} files that are known to be bad, or excluded, are left out": listing.skipped,
        **{f"not used: {phrase}": True for phrase in listing.unused},
        f"no image of {', '.join(lacking)}": lacking,
        f"{turned:,} of {len(samples):,} images have an EXIF orientation, which is ignored": turned,
    }
    told = [remark for remark, is_so in remarks.items() if is_so]
    return Look(samples, facts, damaged, row, told, not (split.train and split.validation))


def _masks(spec: KnownSpec, facts: Sequence[ImageFacts]) -> dict[str, str]:
    row = {}
    for label, name in enumerate(spec.classes[1:], start=1):
        share = [one.shares[label] for one in facts] or [0.0]
        row[f"fraction of {name}"] = f"{sum(share) / len(share):.3f} ({min(share):.3f} to {max(share):.3f})"
    return row


def _photographs(facts: Sequence[ImageFacts]) -> dict[str, str]:
    formats = ", ".join(f"{name} {count:,}" for name, count in sorted(Counter(one.format for one in facts).items()))
    return {"formats": formats, "grey": f"{sum(one.is_grey for one in facts):,}"}


def ends_of(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the classes with the fewest and the most images, with their numbers, by the heads of their columns."""
    ends = {"fewest in a class": min, "most in a class": max}
    found = {head: end(counts, key=counts.__getitem__) for head, end in ends.items()}
    return {head: f"{counts[name]:,} ({name})" for head, name in found.items()}


def _show_duplicates(files: Iterable[tuple[str, str, str]]) -> None:
    groups = [[file[1:] for file in group] for _, group in groupby(sorted(files), lambda file: file[0])]
    groups = [group for group in groups if len(group) > 1]
    groups.sort(key=lambda group: (len({domain for domain, _ in group}) == 1, group))
    shared = sum(len({domain for domain, _ in group}) > 1 for group in groups)
    if groups:
        say(f"duplicates  {len(groups):,} images are there more than once (same bytes): {shared:,} in several domains")
    for group in groups[:SHOWN]:
        names = [file if file.startswith(f"{domain}/") else f"{domain}: {file}" for domain, file in group]
        say(f"  {' = '.join(names)}")


def _sheets(place: Place, looks: Mapping[str, Look], folder: Path) -> Iterator[tuple[Path, bytes]]:
    spec, usable = place.spec, {domain: one.facts for domain, one in looks.items() if one.facts}
    if isinstance(spec, ImageFolderSpec) and usable:
        chosen = {domain: _spread(sorted(found, key=_by_class), IN_A_ROW) for domain, found in usable.items()}
        base, total = place.root / spec.folder, sum(len(one.samples) for one in looks.values())
        rows = {
            domain: [
                (np.asarray(read_image(base / one.sample.file)), _words(one.sample, spec.classes)) for one in found
            ]
            for domain, found in chosen.items()
        }
        title = f"{spec.title}: {sum(map(len, rows.values()))} of {total:,} images"
        yield folder / f"{spec.name}.png", draw_sheet(rows, title)
    if isinstance(spec, SegmentationSpec):
        for domain, pairs in usable.items():
            rows = {}
            for one in _spread(pairs, ON_A_SHEET):
                image, labels = read_pair(place.root, spec, one.sample, place.max_pixels)
                shares = zip(spec.classes[1:], one.shares[1:], strict=True)
                texts = ", ".join(f"{name} {share:.3f}" for name, share in shares)
                rows[stem_of(Path(one.sample.file).name)] = mask_tiles(image, labels, texts)
            title = f"{spec.title}, {domain}: {len(rows)} of {len(pairs)} pairs"
            yield folder / f"{domain}.png", draw_sheet(rows, title, TILE, spec.classes)


def _by_class(facts: ImageFacts) -> tuple[int, str]:
    return facts.sample.label, facts.sample.file


def _words(sample: Sample, classes: Sequence[str]) -> str:
    present = sample.present or [sample.label == at for at in range(len(classes))]
    return ", ".join(name for name, has in zip(classes, present, strict=True) if has) or "none"


def _spread(items: Sequence[T], count: int) -> list[T]:
    number = min(count, len(items))
    return [items[place * len(items) // number] for place in range(number)]
