# SPDX-License-Identifier: Apache-2.0
"""``fdg data check``: look into the images of a data set, in numbers and in pictures."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fdg_plugins.cli.console import make_table, say, show, warn
from fdg_plugins.data.decoding import read_image
from fdg_plugins.data.groups import likely_groups
from fdg_plugins.data.own_files import DatasetFile
from fdg_plugins.data.pairs import stem_of
from fdg_plugins.data.specs import ImageFolderSpec, KnownSpec, LabelsSample, Sample, SegmentationSpec
from fdg_plugins.data.splits import split_of
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.checks import count_images, listing_of, track
from fdg_plugins.lab.preparation.facts import ImageFacts, class_shares, facts_of, read_pair
from fdg_plugins.lab.preparation.sheets import Tile, draw_sheet, mask_tiles
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
    """A domain: the facts of its images, its row of the table, remarks in lines; whether it can only be held out."""

    facts: ImageFacts
    row: Mapping[str, str]
    remarks: Sequence[str]
    is_short: bool = False


def check_files(place: Place, sheets: Path | None) -> None:
    """Print the facts of every domain below the data root, and draw sheets of the images into ``sheets``.

    Raises DataError, after all domains, if some images cannot be used, or no run could start.
    """
    spec: Any = place.spec
    looks = {domain: _look(place, spec, domain) for domain in count_images(place.root, spec, place.rules)}
    head = list(next(iter(looks.values())).row)
    show(make_table(("domain", *head), ((domain, *one.row.values()) for domain, one in looks.items()), NUMBERS))
    for domain, one in looks.items():
        for remark in one.remarks:
            say(f"{domain}: {remark}")
    _show_duplicates(
        (digest, domain, sample.file) for domain, one in looks.items() for sample, digest in one.facts.digests.items()
    )
    for path in (place.root / spec.folder).iterdir():
        if path.is_dir():
            place.rules.excludes(f"{path.name}/")
    if place.rules.idle:
        warn(f"exclude names {', '.join(place.rules.idle)}, which no file matches; expected <domain>/<class>/<image>.")
    if absent := [name for name in spec.domains if name not in looks]:
        warn(f"no folder for {', '.join(absent)}; a run on this machine needs every domain.")
    likely = [found for one in looks.values() if (found := likely_groups(one.facts.samples, len(spec.classes)))]
    if likely and spec.described and place.rules.group is None:
        warn(f"{likely[0]}: if it is a patient, slide or scene, say so in dataset.toml (group), or it leaks.")
    held = Counter(group for one in looks.values() for group in {sample.group for sample in one.facts.samples} - {""})
    if several := sorted(group for group, count in held.items() if count > 1):
        warn(f"images of {place.rules.group} {several[0]}, among {len(several):,}, are in several domains.")
    if sheets is not None:
        for name, sheet in _sheets(place, spec, looks):
            write_bytes(sheets / f"{name}.png", sheet)
            say(f"{sheets / f'{name}.png'}: written")
    if damaged := [error for one in looks.values() for error in one.facts.damaged.values()]:
        say("\n".join(f"unusable    {error}" for error in damaged))
        raise DataError(f"{len(damaged):,} of the images cannot be used.")
    short = ", ".join(domain for domain, one in looks.items() if one.is_short)
    if sum(one.is_short for one in looks.values()) > 1:
        raise DataError(f"no image to train or to validate on in {short}: only one domain can be held out.")
    if short:
        warn(f"no image to train or to validate on in {short}, which can only be held out.")


def _look(place: Place, spec: Any, domain: str) -> Look:
    root, has_masks = place.root, isinstance(spec, SegmentationSpec)
    listing = listing_of(root, spec, domain, place.rules)
    assert listing is not None
    samples, split = listing.images, split_of(listing, spec, domain, seed=0)
    found = facts_of(root, spec, track(samples, f"decoding {domain}"), place.max_pixels)
    sides = (sorted({min(lengths), max(lengths)}) for lengths in zip(*found.sizes, strict=True))
    row = {
        "pairs" if has_masks else "images": f"{len(samples):,}",
        "training": f"{len(split.train):,}",
        "validation": f"{len(split.validation):,}",
        "unusable": f"{len(found.damaged):,}",
        "height x width" if spec.dims == 2 else "size": " x ".join(" to ".join(map(str, ends)) for ends in sides),
    }
    if listing.group is not None:
        row[listing.group] = f"{len({sample.group for sample in samples} - {''}):,}"
    remarks = [f"{len(listing.skipped):,} files that are known to be bad, or excluded, are left out"]
    remarks = [*(remarks if listing.skipped else []), *(f"not used: {phrase}" for phrase in listing.unused)]
    if has_masks:
        for label, name in enumerate(spec.classes[1:], start=1):
            share = [shares[label] for shares in found.shares] or [0.0]
            row[f"fraction of {name}"] = f"{sum(share) / len(share):.3f} ({min(share):.3f} to {max(share):.3f})"
    else:
        by_label = TASKS.get(spec.task).class_counts(samples, len(spec.classes))
        counts = dict(zip(spec.classes, by_label, strict=True))
        row |= ends_of(counts)
        row["formats"] = ", ".join(f"{name} {count:,}" for name, count in sorted(found.formats.items()))
        row["grey"] = f"{found.grey:,}"
        lacking = ", ".join(name for name, count in counts.items() if not count)
        remarks += [f"no image of {lacking}"] if lacking else []
        turned = f"{found.turned:,} of {len(samples):,} images have an EXIF orientation, which is ignored"
        remarks += [turned] if found.turned else []
    return Look(found, row, remarks, not (split.train and split.validation))


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
    if len(groups) > SHOWN:
        say(f"  ... and {len(groups) - SHOWN:,} more")


def _sheets(place: Place, spec: Any, looks: Mapping[str, Look]) -> Iterator[tuple[str, bytes]]:
    usable: dict[str, list[Any]] = {domain: one.facts.usable for domain, one in looks.items() if one.facts.usable}
    if isinstance(spec, ImageFolderSpec) and usable:
        rows = {
            domain: [
                Tile(np.asarray(read_image(place.root / spec.folder / one.file)), _words(one, spec.classes))
                for one in _spread(sorted(found, key=lambda sample: (sample.label, sample.file)), IN_A_ROW)
            ]
            for domain, found in usable.items()
        }
        total = sum(len(one.facts.samples) for one in looks.values())
        yield spec.name, draw_sheet(rows, f"{spec.title}: {sum(map(len, rows.values()))} of {total:,} images")
    for domain, pairs in usable.items() if isinstance(spec, SegmentationSpec) else ():
        rows = {}
        for pair in _spread(pairs, ON_A_SHEET):
            image, labels = read_pair(place.root, spec, pair, place.max_pixels)
            shares = class_shares(labels, len(spec.classes))[1:]
            texts = [f"{name} {share:.3f}" for name, share in zip(spec.classes[1:], shares, strict=True)]
            rows[stem_of(Path(pair.file).name)] = mask_tiles(image, labels, ", ".join(texts))
        yield domain, draw_sheet(rows, f"{spec.title}, {domain}: {len(rows)} of {len(pairs)} pairs", TILE, spec.classes)


def _words(sample: Sample, classes: Sequence[str]) -> str:
    present = sample.present if isinstance(sample, LabelsSample) else [sample.label == at for at in range(len(classes))]
    return ", ".join(name for name, has in zip(classes, present, strict=True) if has) or "none"


def _spread(items: Sequence[T], count: int) -> list[T]:
    number = min(count, len(items))
    return [items[place * len(items) // number] for place in range(number)]
