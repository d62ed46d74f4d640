# SPDX-License-Identifier: Apache-2.0
"""Images that belong together, such as those of one patient, slide or scene: no group is in two parts of a division.

``group`` in ``dataset.toml`` says what a group is. Which image is of which, a column of the lists says, or a regular
expression over the names of files. All of it stays at the site; the hash of the division covers it.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fdg_plugins.data.own_files import DATASET_FILE, DatasetFile
from fdg_plugins.data.specs import Listing, Sample, without_suffix
from fdg_plugins.errors import DataError, shorten

_START = re.compile(r"(.*\d)[ _.-].+")  # patient_07 of patient_07_slice_3


def with_groups(listing: Listing, rules: DatasetFile, column: Mapping[str, str]) -> Listing:
    """Return the listing whose images have the groups that ``rules`` declare; ``column``: those of lists, by file."""
    if rules.group is None:
        return listing
    groups = column
    if (pattern := rules.group_pattern) is not None:
        found = {sample.file: pattern.search(sample.file.rpartition("/")[2]) for sample in listing.images}
        if odd := [file for file, match in found.items() if match is None]:
            problem = f"{len(odd):,} of {len(found):,} images do not match group_pattern"
            raise DataError(f"{problem} of {DATASET_FILE}, such as {shorten(odd[0])}.", public=f"{problem}.")
        groups = {file: "-".join(filter(None, match.groups())) or match[0] for file, match in found.items() if match}
    if not groups:
        expected = "the name of a column in the lists, or any name with a group_pattern"
        raise DataError(field=f"group of {DATASET_FILE}", value=rules.group, expected=expected)

    def own(samples: Sequence[Sample]) -> tuple[Sample, ...]:
        return tuple(replace(sample, group=groups.get(sample.file, "")) for sample in samples)

    given = listing.given and listing.given.mapped(own)
    return replace(listing, images=own(listing.images), given=given, group=rules.group)


def draw_groups(
    samples: Sequence[Sample], stratum: Callable[[Sample], int], asked: Sequence[int], generator: np.random.Generator
) -> set[str]:
    """Return whole groups with about ``asked[s]`` of the images of each stratum s; training keeps some of each.

    Groups are taken in a random order while each brings the numbers nearer to those asked for: with one stratum, they
    miss by at most half of a group. If none does, the one that brings them nearest is taken; a single group never is.
    """
    sizes: dict[str, Counter[int]] = {}
    for sample in samples:
        sizes.setdefault(sample.group, Counter())[stratum(sample)] += 1
    missing, left = [*asked], Counter(map(stratum, samples))

    def gain(name: str) -> tuple[bool, int]:
        own = sizes[name]
        nearer = sum(abs(missing[place]) - abs(missing[place] - count) for place, count in own.items())
        return all(left[place] > count for place, count in own.items()), nearer

    names = sorted(sizes)
    order = [names[row] for row in generator.permutation(len(names))]
    chosen = set()
    for name in order:
        if gain(name) > (True, 0):
            chosen.add(name)
            left.subtract(sizes[name])
            for place, count in sizes[name].items():
                missing[place] -= count
    return chosen or ({max(order, key=gain)} if len(order) > 1 else set())


def check_groups(parts: Mapping[str, Sequence[Sample]]) -> None:
    """Raise DataError for a group of which several of the ``parts`` have images."""
    held: dict[str, set[str]] = {}
    for part, samples in parts.items():
        for sample in samples:
            held.setdefault(sample.group, set()).add(part)
    if torn := sorted(group for group, names in held.items() if group and len(names) > 1):
        problem = f"{len(torn):,} groups of images are in several parts of the division"
        where = " and ".join(sorted(held[torn[0]]))
        raise DataError(f"{problem}, such as {shorten(torn[0])} in {where}.", public=f"{problem}.")


def likely_groups(samples: Sequence[Sample], classes: int) -> str | None:
    """Return a phrase about names that look as if several images were of one group; None if they do not.

    They have a number and something after it, and equal beginnings up to there, more than twice as many as classes.
    """
    matches = (_START.fullmatch(without_suffix(sample.file.rpartition("/")[2])) for sample in samples)
    starts = [(start, count) for start, count in Counter(match[1] for match in matches if match).items() if count > 1]
    if len(starts) <= 2 * classes or 2 * sum(count for _, count in starts) < len(samples):
        return None
    start, count = min(starts)
    return f"{len(starts):,} beginnings of file names have several images, such as {shorten(start)} with {count:,}"
