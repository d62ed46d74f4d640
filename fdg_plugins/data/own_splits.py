# SPDX-License-Identifier: Apache-2.0
"""The split of a domain in image folders; for a user's own, ``dataset.toml`` may give it, by folders or by lists.

Either names the images for training and for validation; all others never train. A held-out domain is judged on all its
images, as everywhere in this package.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from fdg_plugins.data.folders import refuse_outside
from fdg_plugins.data.own_files import DATASET_FILE, DOMAIN, FileRules, Lists, Parts
from fdg_plugins.data.specs import ImageFolderSpec, Sample
from fdg_plugins.data.splits import Split, given_split, listed_split, seeded_split
from fdg_plugins.errors import DataError
from fdg_plugins.values import shorten


def folder_split(
    samples: Sequence[Sample],
    spec: ImageFolderSpec,
    domain: str,
    base: Path,
    rules: FileRules,
    *,
    seed: int,
    max_samples: int | None = None,
    left_out: Collection[str] = (),
) -> Split:
    """Return the split of the domain's ``samples``: that of ``rules``, else of the official lists, else the seeded one.

    ``base`` is the resolved data root, in which the lists are. ``left_out`` are files that are no longer among
    ``samples`` but may still be listed. Raises DataError for a list that cannot be read or does not match the images,
    and for an image in both parts.
    """
    if rules.parts is not None:
        origin, train, validation = "parts", *_by_parts(samples, domain, rules.parts)
    elif rules.lists is not None:
        origin, train, validation = "lists", *_by_lists(samples, domain, base, rules, left_out)
    else:
        listed = listed_split(samples, spec, domain, base, seed=seed, max_samples=max_samples, left_out=left_out)
        return listed or seeded_split(samples, spec, domain, seed=seed, max_samples=max_samples)
    if validation is None:
        drawn = seeded_split(train, spec, domain, seed=seed)
        train, validation, origin = drawn.train, drawn.validation, f"{origin}+90-10@{seed}"
    _refuse_overlap(train, validation, domain)
    return given_split((train, validation, samples), spec, domain, origin, seed=seed, max_samples=max_samples)


_TwoParts = tuple[Sequence[Sample], Sequence[Sample] | None]


def _by_parts(samples: Sequence[Sample], domain: str, parts: Parts) -> _TwoParts:
    def of(part: str) -> list[Sample]:
        return [sample for sample in samples if sample.file.startswith(f"{domain}/{part}/")]

    return of(parts.train), None if parts.validation is None else of(parts.validation)


def _by_lists(
    samples: Sequence[Sample], domain: str, base: Path, rules: FileRules, left_out: Collection[str]
) -> _TwoParts:
    by_file = {sample.file: sample for sample in samples}

    def of(path: str) -> list[Sample]:
        return list(_read_list(base, path.replace(DOMAIN, domain), by_file, domain, rules, left_out))

    lists = rules.lists or Lists(train=DOMAIN)
    return of(lists.train), None if lists.validation is None else of(lists.validation)


def _read_list(
    base: Path, path: str, by_file: dict[str, Sample], domain: str, rules: FileRules, left_out: Collection[str]
) -> Iterator[Sample]:
    """Yield the images that a list names, except those that are left out."""
    public = f"a list of images of domain {domain!r}"
    known, seen = {*by_file, *left_out}, set[str]()
    for number, line in enumerate(_lines(base, base / path, public), start=1):
        # A class may have the name of the domain, so a line may begin with that and not mean the domain.
        inside = f"{domain}/{line}"
        is_whole = line.startswith(f"{domain}/") and inside not in known and not rules.excludes(inside)
        file = line if is_whole else inside
        if not line or file in left_out or rules.excludes(file):
            continue
        if file in seen:
            raise DataError(
                f"list {base / path}, line {number}: {shorten(line)} is there for the second time, expected each image "
                "once.",
                public=f"{public}, line {number}: it names an image for the second time.",
            )
        seen.add(file)
        if file not in by_file:
            raise DataError(
                f"list {base / path}, line {number}: {shorten(line)} is not an image of domain {domain!r}; expected "
                "<class>/<image>.",
                public=f"{public}, line {number}: it names no image of the domain.",
            )
        yield by_file[file]


def _lines(base: Path, path: Path, public: str) -> list[str]:
    refuse_outside(base, path)
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except FileNotFoundError as error:
        raise DataError(
            f"list {path} is not there, expected the file that {DATASET_FILE} names.", public=f"{public} is not there."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"list {path} cannot be read as text: {type(error).__name__}.", public=f"{public} cannot be read as text."
        ) from error


def _refuse_overlap(train: Sequence[Sample], validation: Sequence[Sample], domain: str) -> None:
    if both := sorted({sample.file for sample in train} & {sample.file for sample in validation}):
        raise DataError(
            f"image {both[0]} is for training and for validation, as are {len(both) - 1:,} others; expected one of "
            "them.",
            public=f"domain {domain!r} has {len(both):,} images for training and for validation.",
        )
