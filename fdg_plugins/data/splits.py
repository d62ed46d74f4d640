# SPDX-License-Identifier: Apache-2.0
"""Assign the images of a domain to training and validation: by the user's own ``dataset.toml``, by the official lists
of PACS, or a seeded 90/10 split. ``part_of`` divides both among several sites of one domain.

A held-out domain is evaluated on all its images, or on those of its official test list. A split has a name and a hash.
Two users, or a run and its repetition, compare them to see whether they trained on the same images, without exchanging
lists.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import product
from pathlib import Path

import numpy as np

from fdg_plugins.core.domains import split_indices
from fdg_plugins.data.folders import is_file, refuse_outside
from fdg_plugins.data.own_files import DOMAIN, FileRules
from fdg_plugins.data.specs import DatasetSpec, ImageFolderSpec, Sample, without_suffix
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.randomness import numpy_generator
from fdg_plugins.tasks import TASKS, Task
from fdg_plugins.values import shorten

# Folders, relative to the data set's folder, that may hold the official lists; the last is the download's own name.
KFOLD_FOLDERS = ("", "splits", "kfold", "Train val splits and h5py files pre-read")


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

        The hash covers the sorted lines ``train|validation|test <file> <label>``, each terminated by a newline. Test
        images that are in one of the other two have no line of their own.
        """
        others = {sample.file for sample in (*self.train, *self.validation)}
        lines = [f"train {sample.file} {sample.label}\n" for sample in self.train]
        lines += [f"validation {sample.file} {sample.label}\n" for sample in self.validation]
        lines += [f"test {sample.file} {sample.label}\n" for sample in self.test if sample.file not in others]
        return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:16]


def seeded_split(
    samples: Sequence[Sample], spec: DatasetSpec, domain: str, *, seed: int, max_samples: int | None = None
) -> Split:
    """Split at random into 90 % training and 10 % validation images, separately per stratum (for labels: per class).

    The number of validation images is rounded per stratum and is at least one if the stratum has two or more images; a
    stratum of one image goes to training. ``max_samples`` subsamples the domain first. Raises SettingsError if
    ``max_samples`` is smaller than the number of strata.
    """
    kept = _thinned((samples,), spec, domain, seed, max_samples)
    train: list[Sample] = []
    validation: list[Sample] = []
    for name, members in zip(_task(spec).strata(spec.classes), _by_stratum(kept, spec), strict=True):
        count = max(1, (len(members) + 5) // 10) if len(members) > 1 else 0
        order = numpy_generator(seed, "split", spec.name, domain, name).permutation(len(members))
        validation += [members[i] for i in order[:count]]
        train += [members[i] for i in order[count:]]
    name = f"{spec.name}/90-10@{seed}" + _thinning_suffix(len(samples), max_samples)
    return Split(_in_order(train), _in_order(validation), _in_order(kept), name)


def folder_split(
    samples: Sequence[Sample],
    spec: ImageFolderSpec,
    domain: str,
    root: Path,
    rules: FileRules,
    *,
    seed: int,
    max_samples: int | None = None,
    left_out: Collection[str] = (),
) -> Split:
    """Return the split of the domain's ``samples``: that of ``rules``, else of the official lists, else the seeded one.

    ``root`` is the resolved data root, in which the lists are. ``left_out`` are files that are no longer among
    ``samples`` but may still be listed. Raises DataError, naming list and line, for a list that cannot be read or does
    not match the images, and for an image in both parts.
    """
    if rules.parts is not None:
        origin, train, validation = "parts", *_by_parts(samples, domain, rules)
    elif rules.lists is not None:
        origin, train, validation = "lists", *_by_lists(samples, domain, root, rules, left_out)
    else:
        listed = listed_split(samples, spec, domain, root, seed=seed, max_samples=max_samples, left_out=left_out)
        return listed or seeded_split(samples, spec, domain, seed=seed, max_samples=max_samples)
    if validation is None:
        drawn = seeded_split(train, spec, domain, seed=seed)
        train, validation, origin = drawn.train, drawn.validation, f"{origin}+90-10@{seed}"
    _refuse_overlap(train, validation, domain)
    return given_split((train, validation, samples), spec, domain, origin, seed=seed, max_samples=max_samples)


_TwoParts = tuple[Sequence[Sample], Sequence[Sample] | None]


def _by_parts(samples: Sequence[Sample], domain: str, rules: FileRules) -> _TwoParts:
    assert rules.parts is not None
    parts = [
        None if part is None else [sample for sample in samples if sample.file.startswith(f"{domain}/{part}/")]
        for part in (rules.parts.train, rules.parts.validation)
    ]
    return parts[0] or [], parts[1]


def _by_lists(
    samples: Sequence[Sample], domain: str, root: Path, rules: FileRules, left_out: Collection[str]
) -> _TwoParts:
    """Return the images that the user's own lists name, except those that are left out."""
    assert rules.lists is not None
    by_file = {sample.file: sample for sample in samples}
    known = {*by_file, *left_out}

    def read(line: str) -> Sample | None:
        # A class may have the name of the domain, so a line may begin with that and not mean the domain.
        inside = f"{domain}/{line}"
        is_whole = line.startswith(f"{domain}/") and inside not in known and not rules.excludes(inside)
        file = line if is_whole else inside
        if file in left_out or rules.excludes(file):
            return None
        if file not in by_file:
            raise _LineError("is not an image of the domain; expected <class>/<image>")
        return by_file[file]

    parts = [
        None if path is None else _read_list(root, root / path.replace(DOMAIN, domain), domain, read)
        for path in (rules.lists.train, rules.lists.validation)
    ]
    return parts[0] or (), parts[1]


class _LineError(ValueError):
    """What is wrong with a line of a list, without quoting it."""


def _read_list(root: Path, path: Path, domain: str, read: Callable[[str], Sample | None]) -> tuple[Sample, ...]:
    """Return the images that ``read`` makes of the lines of a list, sorted; None of it are left out.

    Raises DataError, whose public text names neither list nor image, for a list that is no text, a line that ``read``
    refuses, and an image that is named twice.
    """
    refuse_outside(root, path)
    public = f"a list of images of domain {domain!r}"
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"list {path} cannot be read as text: {type(error).__name__}.", public=f"{public} cannot be read as text."
        ) from error
    found: dict[str, Sample] = {}
    for number, line in ((number, line.strip()) for number, line in enumerate(lines, start=1) if line.strip()):
        try:
            if (sample := read(line)) is None:
                continue
            if sample.file in found:
                raise _LineError("names an image twice")
        except _LineError as error:
            raise DataError(
                f"list {path}, line {number}: {shorten(line)} {error}.", public=f"{public}, line {number}: it {error}."
            ) from error
        found[sample.file] = sample
    return _in_order(found.values())


def _refuse_overlap(train: Iterable[Sample], validation: Iterable[Sample], domain: str) -> None:
    if both := sorted({sample.file for sample in train} & {sample.file for sample in validation}):
        raise DataError(
            f"image {both[0]} is for training and for validation, as are {len(both) - 1:,} others; expected it in one.",
            public=f"domain {domain!r} has {len(both):,} images for training and for validation.",
        )


def listed_split(
    samples: Sequence[Sample],
    spec: ImageFolderSpec,
    domain: str,
    root: Path,
    *,
    seed: int,
    max_samples: int | None = None,
    left_out: Collection[str] = (),
) -> Split | None:
    """Return the split defined by the official lists below ``root``, or None if the domain has no such list.

    Its lines are such as ``photo/dog/056_0001.jpg 1``, with labels from 1. ``max_samples`` subsamples training and
    validation images in proportion. ``left_out``, and what is raised, are as in :func:`folder_split`.
    """
    found = (_lists_in(root / spec.folder / name, domain) for name in KFOLD_FOLDERS)
    if (files := next(filter(None, found), None)) is None:
        return None
    by_path: dict[str, list[Sample]] = {}
    for sample in samples:
        for key in (sample.file, sample.stem):
            by_path.setdefault(key, []).append(sample)
    absent = {*left_out, *map(without_suffix, left_out)}

    def read(line: str) -> Sample | None:
        file, number = [*line.rsplit(maxsplit=1), ""][:2]
        # A list entry may lack the suffix; an entry that still matches an image refers to that image.
        meant = by_path.get(file) or by_path.get(without_suffix(file)) or []
        is_left_out = bool({file, without_suffix(file)} & absent) and not meant
        if is_left_out or without_suffix(line.split()[0]) in spec.known_bad:
            return None
        if not re.fullmatch("[0-9]{1,9}", number) or not 1 <= int(number) <= len(spec.classes):
            raise _LineError(f"has another form; expected '{domain}/<class>/<file> <label from 1>'")
        if len(meant) != 1:
            raise _LineError(f"matches {len(meant)} images of the domain; expected exactly one")
        if meant[0].label != int(number) - 1:
            expected = f"{meant[0].label + 1} ({spec.classes[meant[0].label]})"
            raise _LineError(f"has label {number}; expected {expected} as the image's folder says")
        return meant[0]

    parts = {part: _read_list(root, path, domain, read) for part, path in files.items()}
    if empty := [part for part, images in parts.items() if not images]:
        raise DataError(
            f"list {files[empty[0]]} names no image that can be used; expected some.",
            public=f"a list of images of domain {domain!r} names none that can be used.",
        )
    train, validation = parts["train"], parts["crossval"]
    _refuse_overlap(train, validation, domain)
    given = (train, validation, parts.get("test", tuple(samples)))
    return given_split(given, spec, domain, "kfold", seed=seed, max_samples=max_samples)


def _lists_in(folder: Path, domain: str) -> dict[str, Path] | None:
    """Return the lists in one folder, None without a training and a validation list; raise DataError if it has one."""
    paths = {part: folder / f"{domain}_{part}_kfold.txt" for part in ("train", "crossval", "test")}
    found = {part: path for part, path in paths.items() if is_file(path)}
    missing = [paths[part].name for part in ("train", "crossval") if part not in found]
    if len(missing) == 1:
        raise DataError(
            f"folder {folder} lacks {missing[0]}; expected it beside the other list of the domain.",
            public=f"of the lists of training and validation images of domain {domain!r}, one is missing.",
        )
    return None if missing else found


def given_split(
    parts: tuple[Sequence[Sample], Sequence[Sample], Sequence[Sample]],
    spec: DatasetSpec,
    domain: str,
    origin: str,
    *,
    seed: int,
    max_samples: int | None = None,
) -> Split:
    """Return the split whose training, validation and test images are given; ``origin`` says by what.

    ``max_samples`` subsamples all parts in proportion; SettingsError if it is smaller than the number of strata.
    """
    train, validation, test = parts
    others = {*train, *validation}
    disjoint = (train, validation, [sample for sample in test if sample not in others])
    kept = set(_thinned(disjoint, spec, domain, seed, max_samples))
    name = f"{spec.name}/{origin}" + _thinning_suffix(sum(len(part) for part in disjoint), max_samples)
    return Split(_in_order(kept & set(train)), _in_order(kept & set(validation)), _in_order(kept & set(test)), name)


def check_part(domain: str, part: tuple[int, int]) -> None:
    """Raise SettingsError if the number of a part is out of range."""
    number, count = part
    if not 1 <= number <= count:
        raise SettingsError(
            f"part of domain {domain!r} is {number} of {count}; expected a number from 1 to {count}.", public=True
        )


def part_of(split: Split, spec: DatasetSpec, domain: str, part: tuple[int, int], *, seed: int) -> Split:
    """Return one site's share of a domain, ``part = (number, count)`` with numbers from 1; ``test`` stays whole.

    Training and validation images are each divided at random, seeded by ``seed``, into ``count`` sets whose sizes
    differ by at most one (FedIIR, Algorithm 2). With ``count`` 1, the split is returned unchanged. Raises
    SettingsError if the number is out of range or if there are more parts than images.
    """
    check_part(domain, part)
    number, count = part
    if count == 1:
        return split
    if count > min(len(split.train), len(split.validation)):
        raise SettingsError(
            f"domain {domain!r} has {len(split.train)} training and {len(split.validation)} validation images; "
            f"expected at least {count} of each for {count} parts.",
            public=True,
        )
    kept = []
    for purpose, samples in (("train", split.train), ("validation", split.validation)):
        generator = numpy_generator(seed, "part", spec.name, domain, purpose)
        kept.append(tuple(samples[i] for i in split_indices(len(samples), count, generator)[number - 1]))
    return Split(kept[0], kept[1], split.test, f"{equal_name(split.name, split.digest, seed)}/part{number}of{count}")


def equal_name(split: str, digest: str, seed: int) -> str:
    """Return the name of a split that several sites divide equally, from its own name and hash.

    Which site holds which image follows from the split and the seed, so sites with other images differ in the name.
    """
    return f"{split}/equal@{seed}-{digest}"


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
    """Return at most ``max_samples`` of all parts: proportional by stratum and, within a stratum, by part."""
    everything = [sample for part in parts for sample in part]
    if max_samples is None:
        return everything
    strata = _task(spec).strata(spec.classes)
    if max_samples < len(strata):
        raise SettingsError(
            f"max_samples is {max_samples} for domain {domain!r}; expected at least {len(strata)}, one per class.",
            public=True,
        )
    quotas = shares([len(members) for members in _by_stratum(everything, spec)], max_samples, 2)
    groups = zip(*(_by_stratum(part, spec) for part in parts), strict=True)
    kept: list[Sample] = []
    for name, quota, of_parts in zip(strata, quotas, groups, strict=True):
        kept += _drawn(of_parts, quota, numpy_generator(seed, "subsample", spec.name, domain, name))
    return kept


def _drawn(groups: Sequence[Sequence[Sample]], total: int, generator: np.random.Generator) -> list[Sample]:
    """Return at most ``total`` samples, drawn from the groups in proportion to their sizes."""
    counts = shares([len(group) for group in groups], total, 1)
    return [
        group[i] for group, count in zip(groups, counts, strict=True) for i in generator.permutation(len(group))[:count]
    ]


def _thinning_suffix(count: int, max_samples: int | None) -> str:
    return f"/max{max_samples}" if max_samples is not None and max_samples < count else ""


def _task(spec: DatasetSpec) -> Task:
    return TASKS.get(spec.task)


def _by_stratum(samples: Iterable[Sample], spec: DatasetSpec) -> list[list[Sample]]:
    task = _task(spec)
    found: list[list[Sample]] = [[] for _ in task.strata(spec.classes)]
    for sample in _in_order(samples):
        found[task.stratum(sample)].append(sample)
    return found


def _in_order(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    return tuple(sorted(samples, key=lambda sample: sample.file))
