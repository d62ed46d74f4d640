# SPDX-License-Identifier: Apache-2.0
"""Assign the images of a domain to training and validation: a seeded 90/10 split, or the official lists of PACS.

``part_of`` divides both among several sites of one domain.

A split has a name and a hash. Two users, or a run and its repetition, compare them to see whether they trained on the
same images, without exchanging lists.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import product
from pathlib import Path

import numpy as np

from fdg_plugins.core.domains import split_indices
from fdg_plugins.data.folders import is_file
from fdg_plugins.data.links import leads_outside
from fdg_plugins.data.specs import DatasetSpec, ImageFolderSpec, Sample, without_suffix
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.randomness import numpy_generator
from fdg_plugins.tasks import TASKS, Task
from fdg_plugins.values import shorten

# Folders, relative to the data set's folder, that may hold the official lists; the last is the download's own name.
_PARTS = {"train": "training", "crossval": "validation", "test": "test"}
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

    ``max_samples`` subsamples training and validation images in proportion. ``left_out`` are files that are no longer
    among ``samples`` but may still be listed. Raises DataError, naming list and line, if a list does not match the
    images, if only one of the two lists exists, or if they overlap; SettingsError for too small a ``max_samples``.
    """
    files = _find_lists(root, spec, domain)
    if files is None:
        return None
    reader = _ListReader(root, samples, left_out, spec, domain)
    train, validation = (reader.read(files[part], part) for part in ("train", "crossval"))
    test = reader.read(files["test"], "test") if "test" in files else tuple(samples)
    if overlap := sorted({sample.file for sample in train} & {sample.file for sample in validation}):
        raise DataError(
            f"image {overlap[0]} is named by both {files['train']} and {files['crossval']}; expected it in one.",
            public=f"its lists of training and validation images of domain {domain!r} have {len(overlap):,} images in "
            "common; expected none.",
        )
    return given_split((train, validation, test), spec, domain, "kfold", seed=seed, max_samples=max_samples)


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
    disjoint = (train, validation, _without(test, (*train, *validation)))
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
    """Return the samples of each stratum, sorted by their files."""
    task = _task(spec)
    found: list[list[Sample]] = [[] for _ in task.strata(spec.classes)]
    for sample in _in_order(samples):
        found[task.stratum(sample)].append(sample)
    return found


def _in_order(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    return tuple(sorted(samples, key=lambda sample: sample.file))


def _without(samples: Iterable[Sample], others: Iterable[Sample]) -> list[Sample]:
    excluded = set(others)
    return [sample for sample in samples if sample not in excluded]


def _find_lists(root: Path, spec: ImageFolderSpec, domain: str) -> dict[str, Path] | None:
    """Return the lists of the first folder with a training or validation list, keyed train, crossval and test."""
    found = (_lists_in(root / spec.folder / name, domain) for name in KFOLD_FOLDERS)
    return next(filter(None, found), None)


def _lists_in(folder: Path, domain: str) -> dict[str, Path] | None:
    """Return the lists in one folder, None without a training and a validation list; raise DataError if it has one."""
    paths = {part: folder / f"{domain}_{part}_kfold.txt" for part in ("train", "crossval", "test")}
    found = {part: path for part, path in paths.items() if is_file(path)}
    missing = [paths[part].name for part in {"train", "crossval"} - found.keys()]
    if len(missing) == 1:
        raise DataError(
            f"folder {folder} lacks {missing[0]}; expected it beside the other list of the domain.",
            public=f"of the lists of training and validation images of domain {domain!r}, one is missing.",
        )
    return None if missing else found


class _ListReader:
    """Reads the official lists of one domain; errors name the list in the site's own log, but not in public."""

    def __init__(
        self, root: Path, samples: Sequence[Sample], left_out: Collection[str], spec: ImageFolderSpec, domain: str
    ) -> None:
        self.root = root
        self.spec = spec
        self.domain = domain
        self._by_path = _by_path(samples)
        self._absent = {*left_out, *map(without_suffix, left_out)}

    def read(self, path: Path, part: str) -> tuple[Sample, ...]:
        """Return the images listed in the file at ``path``, except known bad and left-out ones."""
        public = f"its list of {_PARTS[part]} images of domain {self.domain!r}"
        found: dict[str, Sample] = {}
        for line, place in self._entries(path, public):
            sample = self._read_line(line, place)
            if sample.file in found:
                raise place.error(f"image {sample.file} is named twice; expected it once", "an image is named twice")
            found[sample.file] = sample
        if not found:
            raise DataError(
                f"list {path} names no image; expected lines like '{self.domain}/{self.spec.classes[0]}/<file> 1'.",
                public=f"{public} names none that can be used.",
            )
        return _in_order(found.values())

    def _entries(self, path: Path, public: str) -> Iterator[tuple[str, "_Place"]]:
        """Yield the lines that name an image to be read, each with its place."""
        for number, line in enumerate(self._lines(path, public), start=1):
            if line.strip() and not self._is_left_out(line):
                yield line, _Place(f"list {path}, line {number}", f"{public}, line {number}")

    def _lines(self, path: Path, public: str) -> list[str]:
        if leads_outside(self.root, path):
            raise DataError(
                f"list {path} is a link out of the data root; expected a file below {self.root}.",
                public=f"{public} is a link out of its data root.",
            )
        try:
            return path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"list {path} cannot be read as text: {type(error).__name__}.",
                public=f"{public} cannot be read as text.",
            ) from error

    def _is_left_out(self, line: str) -> bool:
        if without_suffix(line.split()[0]) in self.spec.known_bad:
            return True
        file = line.rsplit(maxsplit=1)[0].strip()
        # A list entry may lack the suffix; an entry that still matches an image refers to that image.
        return bool({file, without_suffix(file)} & self._absent) and not self._meant(file)

    def _read_line(self, line: str, place: "_Place") -> Sample:
        """Return the image of a line such as ``photo/dog/056_0001.jpg 1``; labels in lists start at 1."""
        classes = self.spec.classes
        file, number = self._file_and_label(line, place)
        meant = self._meant(file)
        if len(meant) != 1:
            matching = f"{len(meant)} images of domain {self.domain} match"
            raise place.error(f"{matching} {file}; expected exactly one", f"{matching} it; expected exactly one")
        if meant[0].label != int(number) - 1:
            expected = f"{meant[0].label + 1} ({classes[meant[0].label]})"
            raise place.error(
                f"{file} has label {number}; expected {expected} as its folder says",
                f"the label is {number}; expected {expected} as the image's folder says",
            )
        return meant[0]

    def _file_and_label(self, line: str, place: "_Place") -> tuple[str, str]:
        """Return the two parts of a line; the label is the text of a number from 1 to that of the classes."""
        file, number = [*line.rsplit(maxsplit=1), ""][:2]
        if not re.fullmatch("[0-9]{1,9}", number):
            expected = f"expected '{self.domain}/<class>/<file> <label>'"
            raise place.error(f"got {shorten(line.strip())}; {expected}", f"it has another form; {expected}")
        if not 1 <= int(number) <= len(self.spec.classes):
            raise place.error(
                f"label {number} is out of range; expected 1 to {len(self.spec.classes)}", "a label is out of range"
            )
        return file, number

    def _meant(self, file: str) -> list[Sample]:
        return self._by_path.get(file) or self._by_path.get(without_suffix(file)) or []


@dataclass(frozen=True)
class _Place:
    """A line of a list, worded for the site's own log and for the public message."""

    own: str
    public: str

    def error(self, own: str, public: str) -> DataError:
        """Return the error on this line."""
        return DataError(f"{self.own}: {own}.", public=f"{self.public}: {public}.")


def _by_path(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Map each path, with and without its suffix, to the images it can refer to."""
    result: dict[str, list[Sample]] = {}
    for sample in samples:
        for key in (sample.file, sample.stem):
            result.setdefault(key, []).append(sample)
    return result
