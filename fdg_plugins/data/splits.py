# SPDX-License-Identifier: Apache-2.0
"""Assign the images of a domain to training and validation: as a user's lists or folders say, or a seeded 90/10 split.

``part_of`` divides both among several sites of one domain. A held-out domain is evaluated on all its images, or on
those of its test list. By a split's name and hash, two users, or a run and its repetition, see whether they trained on
the same images, without exchanging lists.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from heapq import heapify, heappop, heappush
from itertools import product

from fdg_plugins.core.partition import split_indices
from fdg_plugins.data.groups import check_groups, draw_groups
from fdg_plugins.data.specs import DatasetSpec, Listing, Sample
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.randomness import numpy_generator
from fdg_plugins.tasks import TASKS


@dataclass(frozen=True)
class Split:
    """Disjoint training and validation images, and the images that evaluate a held-out domain."""

    train: tuple[Sample, ...]
    validation: tuple[Sample, ...]
    test: tuple[Sample, ...]
    name: str

    @cached_property
    def digest(self) -> str:
        """Return the first 16 hex digits of the split's SHA-256.

        The hash covers the sorted lines ``train|validation|test <file> <label>``, with the group after them if the
        image has one, each terminated by a newline. Test images that are in one of the other two have no line.
        """
        others = {sample.file for sample in (*self.train, *self.validation)}
        test = [sample for sample in self.test if sample.file not in others]
        parts = {"train": self.train, "validation": self.validation, "test": test}
        lines = [f"{part} {_facts(sample)}\n" for part, samples in parts.items() for sample in samples]
        return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:16]


def _facts(sample: Sample) -> str:
    return f"{sample.file} {sample.label}" + (f" {sample.group}" if sample.group else "")


def split_of(
    listing: Listing,
    spec: DatasetSpec,
    domain: str,
    *,
    seed: int,
    max_samples: int | None = None,
    left_out: Collection[str] = (),
) -> Split:
    """Return the split that the listing gives, or else the seeded one, of the images that are not ``left_out``.

    ``max_samples`` subsamples all parts in proportion to the classes.
    """

    def kept(samples: Sequence[Sample]) -> tuple[Sample, ...]:
        return tuple(sample for sample in samples if sample.file not in left_out)

    images, given = kept(listing.images), listing.given
    task = TASKS.get(spec.task)
    strata = zip(task.strata(spec.classes), _by_stratum(listing.images, spec), _by_stratum(images, spec), strict=True)
    expected = [(f"of class {name!r}", 2, before, after) for name, before, after in strata]
    if given is not None:  # a list's validation images must not become others silently
        parts = {"training": given.train, "validation": given.validation or (), "test": given.test or ()}
        expected += [(f"for {name}", 1, [*part], [*kept(part)]) for name, part in parts.items()]
    for what, least, before, after in expected:
        if len(after) < min(len(before), least):
            usable = f"usable images of the {len(before):,} {what} in domain {domain!r}"
            raise DataError(field=usable, value=len(after), expected=f"at least {least}", public=True)
    draw = partial(seeded_split, spec=spec, domain=domain, seed=seed, group=listing.group)
    if given is None:
        return draw(images, max_samples=max_samples)
    given = given.mapped(kept)
    origin, train, validation = f"{given.origin}{_by(listing.group)}", given.train, given.validation
    if validation is None:
        drawn = draw(train)
        train, validation, origin = drawn.train, drawn.validation, f"{origin}+90-10@{seed}"
    if both := sorted({one.file for one in train} & {one.file for one in validation}):
        raise DataError(f"image {both[0]} is for training and for validation, as are {len(both) - 1:,} others.")
    check_groups({"training": train, "validation": validation, "test": given.test or ()})
    test, others = given.test or images, {*train, *validation}
    disjoint = (train, validation, [sample for sample in test if sample not in others])
    used = {*_thinned(disjoint, spec, domain, seed, max_samples)}
    name = f"{spec.name}/{origin}" + _thinning_suffix(sum(map(len, disjoint)), max_samples)
    return Split(_in_order(used & {*train}), _in_order(used & {*validation}), _in_order(used & {*test}), name)


def seeded_split(
    samples: Sequence[Sample],
    spec: DatasetSpec,
    domain: str,
    *,
    seed: int,
    max_samples: int | None = None,
    group: str | None = None,
) -> Split:
    """Split at random into 90 % training and 10 % validation images, separately per stratum (for labels: per class).

    The number of validation images is rounded per stratum and is at least one if the stratum has two or more images; a
    stratum of one image goes to training. ``group``: what keeps images together, so that the numbers are those that
    whole groups allow (:func:`draw_groups`). ``max_samples`` subsamples the domain first. Raises SettingsError if it is
    smaller than the number of strata.
    """
    kept = _thinned((samples,), spec, domain, seed, max_samples)
    task, strata = TASKS.get(spec.task), _by_stratum(kept, spec)
    counts = [max(1, (len(members) + 5) // 10) if len(members) > 1 else 0 for members in strata]
    if group is None:
        chosen = set()
        for name, members, count in zip(task.strata(spec.classes), strata, counts, strict=True):
            order = numpy_generator(seed, "split", spec.name, domain, name).permutation(len(members))
            chosen |= {members[row] for row in order[:count]}
    else:
        generator = numpy_generator(seed, "split by group", spec.name, domain)
        groups = draw_groups(kept, task.stratum, counts, generator)
        chosen = {sample for sample in kept if sample.group in groups}
    name = f"{spec.name}/90-10{_by(group)}@{seed}" + _thinning_suffix(len(samples), max_samples)
    train = [sample for sample in kept if sample not in chosen]
    return Split(_in_order(train), _in_order(chosen), _in_order(kept), name)


def _by(group: str | None) -> str:
    return f"-by-{group}" if group else ""


def part_of(split: Split, spec: DatasetSpec, domain: str, part: tuple[int, int], *, seed: int) -> Split:
    """Return one site's share of a domain, ``part = (number, count)`` with numbers from 1; ``test`` stays whole.

    Training and validation images are each divided at random, seeded by ``seed``, into ``count`` sets whose sizes
    differ by at most one (FedIIR, Algorithm 2). With ``count`` 1, the split is returned unchanged.
    """
    number, count = part
    if count == 1:
        return split
    if count > min(len(split.train), len(split.validation)):
        found, expected = (len(split.train), len(split.validation)), f"at least {count} of each for {count} parts"
        what = f"numbers of images of domain {domain!r} for training and for validation"
        raise SettingsError(field=what, value=found, expected=expected, public=True)
    kept = []
    for purpose, samples in (("train", split.train), ("validation", split.validation)):
        generator = numpy_generator(seed, "part", spec.name, domain, purpose)
        kept.append(tuple(samples[i] for i in split_indices(len(samples), count, generator)[number - 1]))
    # Which site holds which image follows from the split and the seed: sites with other images differ in the name.
    return Split(kept[0], kept[1], split.test, f"{split.name}/equal@{seed}-{split.digest}/part{number}of{count}")


def shares(sizes: Sequence[int], total: int, minimum: int) -> list[int]:
    """Divide ``total`` among groups in proportion to their ``sizes``; no group gets more than its size.

    Each group first gets up to ``minimum``, one at a time in the given order, while ``total`` lasts. The remainder is
    assigned one by one to the group furthest below its proportional share. Returns one count per group; the counts sum
    to ``total``, or to the sum of the sizes if that is smaller.
    """
    whole = sum(sizes)
    total = left = min(total, whole)
    result = [0] * len(sizes)
    for level, (i, size) in product(range(minimum), enumerate(sizes)):
        if size > level and left:
            result[i] += 1
            left -= 1
    # How far each group, not yet whole, is above its share, with its position: the first of equals comes first.
    above = [(result[i] * whole - size * total, i) for i, size in enumerate(sizes) if result[i] < size]
    heapify(above)
    for _ in range(left):
        excess, i = heappop(above)
        result[i] += 1
        if result[i] < sizes[i]:
            heappush(above, (excess + whole, i))
    return result


def _thinned(
    parts: Sequence[Sequence[Sample]], spec: DatasetSpec, domain: str, seed: int, max_samples: int | None
) -> list[Sample]:
    everything = [sample for part in parts for sample in part]
    if max_samples is None:
        return everything
    strata = TASKS.get(spec.task).strata(spec.classes)
    if max_samples < len(strata):
        where, least = f"domain {domain!r}", f"at least {len(strata)}, one per class"
        raise SettingsError(site=where, field="max_samples", value=max_samples, expected=least, public=True)
    quotas = shares([len(members) for members in _by_stratum(everything, spec)], max_samples, 2)
    groups = zip(*(_by_stratum(part, spec) for part in parts), strict=True)
    kept: list[Sample] = []
    for name, quota, of_parts in zip(strata, quotas, groups, strict=True):
        generator = numpy_generator(seed, "subsample", spec.name, domain, name)
        for group, count in zip(of_parts, shares([len(group) for group in of_parts], quota, 1), strict=True):
            kept += [group[i] for i in generator.permutation(len(group))[:count]]
    return kept


def _thinning_suffix(count: int, max_samples: int | None) -> str:
    return f"/max{max_samples}" if max_samples is not None and max_samples < count else ""


def _by_stratum(samples: Iterable[Sample], spec: DatasetSpec) -> list[list[Sample]]:
    task = TASKS.get(spec.task)
    found: list[list[Sample]] = [[] for _ in task.strata(spec.classes)]
    for sample in _in_order(samples):
        found[task.stratum(sample)].append(sample)
    return found


def _in_order(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    return tuple(sorted(samples, key=lambda sample: sample.file))
