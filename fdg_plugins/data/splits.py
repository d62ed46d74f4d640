# SPDX-License-Identifier: Apache-2.0
"""Which images of a domain train, validate and test, and at which of the sites that share it.

A user's lists or folders say so, or a seeded 90/10 split. A held-out domain is evaluated on all its images, or on those
of its test list. By a split's name and hash, two users, or a run and its repetition, see whether they trained on the
same images, without exchanging lists. Images of one group, such as those of a patient, are in one part; the hash covers
the groups, which stay at the site.

The partition ``equal`` divides training and validation images over sites separately (:func:`part_of`). ``mix`` gives
each site training and validation images of all source domains (:func:`mixed_split`). The others pool both, divide the
pool by its classes (:mod:`fdg_plugins.core.partition`), and give every site three quarters of its images to train on
and a quarter, class by class, as its own test images (:func:`site_splits`). Every site computes the whole partition
from the seed.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product

import numpy as np

from fdg_plugins.core.partition import dirichlet_parts, equal_parts, mixed_part, shard_parts, split_indices
from fdg_plugins.data.own_files import DATASET_FILE
from fdg_plugins.data.specs import DatasetSpec, Listing, Sample
from fdg_plugins.errors import DataError, SettingsError, shorten
from fdg_plugins.randomness import numpy_generator
from fdg_plugins.tasks import TASKS

EQUAL = "equal"
MIX = "mix"
KINDS = (EQUAL, "iid", "dirichlet", "shards")
OWN_TEST = 4  # one of so many images of a site's class


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
        lines = [
            f"{part} {one.file} {one.label}{one.group and f' {one.group}'}\n"
            for part, samples in parts.items()
            for one in samples
        ]
        return _hash(sorted(lines))


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

    ``max_samples`` subsamples all parts in proportion to the classes. Raises DataError if too few images are left, and
    for an image or a group that is in several parts.
    """
    images = tuple(sample for sample in listing.images if sample.file not in left_out)
    parts = {part: [one for one in images if one.file in files] for part, files in listing.parts.items()}
    _check_left(listing, images, parts, spec, domain)
    _check_apart(parts)
    draw = partial(seeded_split, spec=spec, domain=domain, seed=seed, group=listing.group)
    if not parts:
        return draw(images, max_samples=max_samples)
    origin, train = f"{listing.origin}{_by(listing.group)}", tuple(parts.get("training", ()))
    if "validation" in parts:
        validation = tuple(parts["validation"])
    else:
        drawn = draw(train)
        train, validation, origin = drawn.train, drawn.validation, f"{origin}+90-10@{seed}"
    test, others = parts.get("test") or images, {*train, *validation}
    disjoint = (train, validation, [sample for sample in test if sample not in others])
    used = {*_thinned(disjoint, spec, domain, seed, max_samples)}
    name = f"{spec.name}/{origin}" + _thinning_suffix(sum(map(len, disjoint)), max_samples)
    return Split(_in_order(used & {*train}), _in_order(used & {*validation}), _in_order(used & {*test}), name)


def _check_left(
    listing: Listing, images: Sequence[Sample], parts: Mapping[str, Sequence[Sample]], spec: DatasetSpec, domain: str
) -> None:
    names = TASKS.get(spec.task).strata(spec.classes)
    strata = zip(names, _by_stratum(listing.images, spec), _by_stratum(images, spec), strict=True)
    numbers = [(f"of class {name!r}", 2, len(had), len(has)) for name, had, has in strata]
    # A list's validation images must not become others silently.
    numbers += [(f"for {part}", 1, len(listing.parts[part]), len(has)) for part, has in parts.items()]
    for what, least, had, has in numbers:
        if has < min(had, least):
            usable = f"usable images of the {had:,} {what} in domain {domain!r}"
            raise DataError(field=usable, value=has, expected=f"at least {least}", public=True)


def _check_apart(parts: Mapping[str, Sequence[Sample]]) -> None:
    held: dict[str, set[str]] = {}
    for part, sample in ((part, sample) for part, samples in parts.items() for sample in samples):
        if sample.group or part != "test":  # the official lists have every image for tests
            held.setdefault(sample.group or sample.file, set()).add(part)
    if torn := sorted(name for name, names in held.items() if len(names) > 1):
        problem = f"{len(torn):,} images, or groups of them, are in several parts of the division"
        where = " and ".join(sorted(held[torn[0]]))
        raise DataError(f"{problem}, such as {shorten(torn[0])} in {where}.", field="parts", public=f"{problem}.")


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


def _by(group: str | None) -> str:
    return f"-by-{group}" if group else ""


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
    for _ in range(left):
        open_ = (i for i, size in enumerate(sizes) if result[i] < size)
        result[min(open_, key=lambda i: result[i] * whole - sizes[i] * total)] += 1  # the first of equals
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


# --- over the sites that share a domain ---


@dataclass(frozen=True)
class Partition:
    """How the images of a domain are divided over the sites that share it; ``alpha`` is that of ``dirichlet``.

    ``least``: the fewest images of a site. Of ``mix``: the ``share`` of each domain that all sites divide, and the
    number of sites of each source domain, in the order of the domains.
    """

    kind: str = EQUAL
    alpha: float = 0.1
    least: int = 10
    share: float = 0.0
    counts: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """Its part of the split's name, such as ``dirichlet0.1-least10``."""
        return f"{self.kind}{f'{self.alpha:g}' if self.kind == 'dirichlet' else ''}-least{self.least}"


EQUAL_PARTS = Partition()


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


def mixed_split(splits: Mapping[str, Split], domain: str, number: int, partition: Partition, seed: int) -> Split:
    """Return the images of site ``number`` of ``domain``, from 1, of every source domain; ``test`` is the domain's.

    ``splits``: of all source domains. Training and validation images are divided separately.
    """
    counts, kept = dict(partition.counts), []
    sites = [(name, own) for name, count in counts.items() for own in range(1, count + 1)]
    site, part = (sites.index((domain, number)) + 1, len(sites)), (number, counts[domain])
    for purpose in ("train", "validation"):
        found: list[Sample] = []
        for name, split in splits.items():
            samples = split.train if purpose == "train" else split.validation
            generator = numpy_generator(seed, "mix", split.name, name, purpose)
            chosen = mixed_part(len(samples), partition.share, site, part if name == domain else None, generator)
            found += [samples[row] for row in chosen.tolist()]
        _refuse_groups(found, partition)
        if not found:
            expected = f"more of each than {len(sites)} sites divide"
            raise SettingsError(field=f"{purpose} images of the mixed domains", value=0, expected=expected, public=True)
        kept.append(_in_order(found))
    whole = _hash(f"{name} {counts[name]} {split.digest}\n" for name, split in splits.items())
    name = f"{splits[domain].name}/{MIX}{partition.share:g}@{seed}-{whole}/part{number}of{counts[domain]}"
    return Split(kept[0], kept[1], splits[domain].test, name)


def site_splits(
    split: Split, spec: DatasetSpec, domain: str, count: int, partition: Partition, seed: int
) -> list[Split]:
    """Return the splits of all ``count`` sites of a domain; ``test`` has all images of a site, which count it."""
    pool = _in_order((*split.train, *split.validation))
    _refuse_groups(pool, partition)
    labels = np.array([sample.label for sample in pool], dtype=np.int64)
    generator = numpy_generator(seed, "partition", spec.name, domain, partition.name, count)
    try:
        if partition.kind == "dirichlet":
            parts = dirichlet_parts(labels, count, partition.alpha, partition.least, generator)
        else:
            divide = shard_parts if partition.kind == "shards" else equal_parts
            parts = divide(labels, count, partition.least, generator)
    except ValueError as error:
        problem = f"domain {domain!r} cannot be divided over {count} sites ({partition.name}): {error}"
        raise SettingsError(problem, public=True) from error
    images = tuple(tuple(pool[row] for row in own.tolist()) for own in parts)
    held = [(number, sample) for number, own in enumerate(images, 1) for sample in own]
    thinned = "".join(re.findall(r"/max\d+$", split.name))
    stem = f"{spec.name}/75-25{thinned}/{partition.name}@{seed}-"
    name = stem + _hash(f"{number} {sample.file} {sample.label}\n" for number, sample in held)
    # Without labels: the draws of each site's own test images are those of runs before names covered the labels.
    drawn_as = stem + _hash(f"{number} {sample.file}\n" for number, sample in held)
    splits = []
    for number, own in enumerate(images, 1):
        judged = _own_test(own, numpy_generator(seed, "own test", spec.name, domain, drawn_as, number))
        train = tuple(sample for sample in own if sample not in judged)
        validation = _in_order(judged)
        splits.append(Split(train, validation, own, f"{name}/part{number}of{count}"))
    return splits


def _own_test(own: Sequence[Sample], generator: np.random.Generator) -> set[Sample]:
    """Draw a quarter of each class of a site's images, but at least one image; training has one too."""
    judged: set[Sample] = set()
    for label in sorted({sample.label for sample in own}):
        members = [sample for sample in own if sample.label == label]
        chosen = generator.permutation(len(members))[: (len(members) + OWN_TEST // 2) // OWN_TEST]
        judged |= {members[row] for row in chosen.tolist()}
    return judged or {own[int(generator.integers(len(own)))]}


def _refuse_groups(samples: Iterable[Sample], partition: Partition) -> None:
    if any(sample.group for sample in samples):
        expected = f"{EQUAL!r}: no other keeps the groups of {DATASET_FILE} together"
        raise SettingsError(field="partition", value=partition.kind, expected=expected, public=True)


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
