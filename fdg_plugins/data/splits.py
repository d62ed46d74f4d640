# SPDX-License-Identifier: Apache-2.0
"""Assign the images of a domain to training and validation: by the user's own ``dataset.toml``, by the official lists
of PACS, or a seeded 90/10 split. ``part_of`` divides both among several sites of one domain.

A held-out domain is evaluated on all its images, or on those of its official test list. A split has a name and a hash.
Two users, or a run and its repetition, compare them to see whether they trained on the same images, without exchanging
lists.
"""

import hashlib
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
from fdg_plugins.errors import DataError, SettingsError, shorten
from fdg_plugins.randomness import numpy_generator
from fdg_plugins.tasks import TASKS, Task

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
    test: Sequence[Sample] = samples
    train: Sequence[Sample] | None
    validation: Sequence[Sample] | None
    if rules.parts is not None:
        origin, folders = "parts", (rules.parts.train, rules.parts.validation)
        train, validation = (
            None if part is None else [one for one in samples if one.file.startswith(f"{domain}/{part}/")]
            for part in folders
        )
    elif rules.lists is not None:
        origin, paths = "lists", (rules.lists.train, rules.lists.validation)
        read = _own_line(samples, domain, rules, left_out)
        train, validation = (
            None if path is None else _read_list(root, root / path.replace(DOMAIN, domain), read) for path in paths
        )
    elif files := _official_lists(root / spec.folder, domain):
        origin, read = "kfold", _official_line(samples, spec, domain, left_out)
        parts = {part: _read_list(root, path, read) for part, path in files.items()}
        if not all(parts.values()):
            raise DataError(
                f"a list of images of domain {domain!r} names none that can be used; expected some.", public=True
            )
        train, validation, test = parts["train"], parts["crossval"], parts.get("test", samples)
    else:
        return seeded_split(samples, spec, domain, seed=seed, max_samples=max_samples)
    assert train is not None
    if validation is None:
        drawn = seeded_split(train, spec, domain, seed=seed)
        train, validation, origin = drawn.train, drawn.validation, f"{origin}+90-10@{seed}"
    if both := sorted({one.file for one in train} & {one.file for one in validation}):
        raise DataError(f"image {both[0]} is for training and for validation, as are {len(both) - 1:,} others.")
    return given_split((train, validation, test), spec, domain, origin, seed=seed, max_samples=max_samples)


ReadLine = Callable[[str], Sample | None]


def _read_list(root: Path, path: Path, read: ReadLine) -> tuple[Sample, ...]:
    """Return the images that ``read`` makes of the lines of a list, sorted; None of it are left out.

    Raises DataError for a list that is no text, a line that ``read`` refuses, and an image that is named twice.
    """
    refuse_outside(root, path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"list {path} cannot be read as text ({type(error).__name__}).") from error
    found: dict[str, Sample] = {}
    for number, line in ((number, line.strip()) for number, line in enumerate(lines, start=1) if line.strip()):
        try:
            sample = read(line)
        except ValueError as error:
            raise DataError(f"list {path}, line {number}: {shorten(line)} {error}.") from error
        if sample is not None and sample.file in found:
            raise DataError(f"list {path}, line {number}: {shorten(line)} names an image twice.")
        if sample is not None:
            found[sample.file] = sample
    return _in_order(found.values())


def _own_line(samples: Sequence[Sample], domain: str, rules: FileRules, left_out: Collection[str]) -> ReadLine:
    """Return the reader of a line ``<class>/<image>`` or ``<domain>/<class>/<image>`` of a user's own list."""
    by_file: dict[str, Sample] = {sample.file: sample for sample in samples}

    def read(line: str) -> Sample | None:
        # A class may have the name of the domain, so a line may begin with that and not mean the domain.
        inside = f"{domain}/{line}"
        is_inside = inside in by_file or inside in left_out or rules.excludes(inside)
        file = inside if is_inside or not line.startswith(f"{domain}/") else line
        if file in left_out or rules.excludes(file):
            return None
        if file not in by_file:
            raise ValueError("is not an image of the domain; expected <class>/<image>")
        return by_file[file]

    return read


def _official_line(
    samples: Sequence[Sample], spec: ImageFolderSpec, domain: str, left_out: Collection[str]
) -> ReadLine:
    """Return the reader of a line ``photo/dog/056_0001.jpg 1`` of an official list, with labels from 1.

    An entry may lack the suffix, or have another one; if it still matches one image, it refers to that image.
    """
    by_path: dict[str, list[Sample]] = {}
    for sample in samples:
        for key in (sample.file, sample.stem):
            by_path.setdefault(key, []).append(sample)
    absent = {*map(without_suffix, left_out), *spec.known_bad}

    def read(line: str) -> Sample | None:
        file, number = [*line.rsplit(maxsplit=1), ""][:2]
        meant = by_path.get(file) or by_path.get(without_suffix(file)) or []
        if not meant and without_suffix(file) in absent:
            return None
        if len(meant) != 1 or number != str(meant[0].label + 1):
            raise ValueError(f"matches no image and its class; expected '{domain}/<class>/<file> <label from 1>'")
        return meant[0]

    return read


def _official_lists(folder: Path, domain: str) -> dict[str, Path]:
    """Return the official lists of a domain, empty if there are none; raise DataError if one of two is missing."""
    for place in (folder / name for name in KFOLD_FOLDERS):
        paths = {part: place / f"{domain}_{part}_kfold.txt" for part in ("train", "crossval", "test")}
        found = {part: path for part, path in paths.items() if is_file(path)}
        if len(found.keys() & {"train", "crossval"}) == 1:
            raise DataError(f"folder {place} lacks one of the lists of training and validation images of {domain}.")
        if "train" in found:
            return found
    return {}


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


def part_of(split: Split, spec: DatasetSpec, domain: str, part: tuple[int, int], *, seed: int) -> Split:
    """Return one site's share of a domain, ``part = (number, count)`` with numbers from 1; ``test`` stays whole.

    Training and validation images are each divided at random, seeded by ``seed``, into ``count`` sets whose sizes
    differ by at most one (FedIIR, Algorithm 2). With ``count`` 1, the split is returned unchanged. Raises
    SettingsError if there are more parts than images.
    """
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
