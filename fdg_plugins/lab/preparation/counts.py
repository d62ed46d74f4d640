# SPDX-License-Identifier: Apache-2.0
"""Counts of images by domain and class, compared with the known counts of the data set."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fdg_plugins.data.attribute_lists import list_attributed
from fdg_plugins.data.data_lists import find_data_list
from fdg_plugins.data.folders import existing_folders, list_domain
from fdg_plugins.data.mnist import PARTS, read_part
from fdg_plugins.data.origins import Release, origin_of
from fdg_plugins.data.own_files import NO_RULES, FileRules, rules_of
from fdg_plugins.data.pairs import list_pairs
from fdg_plugins.data.published import published_domain
from fdg_plugins.data.specs import (
    AttributeSpec,
    ImageFolderSpec,
    KnownSpec,
    PublishedSpec,
    RotatedSpec,
    Sample,
    SegmentationSpec,
)
from fdg_plugins.errors import DataError

Counts = Mapping[str, Mapping[str, int]]
"""Images by domain (MNIST: by part) and class; with masks, pairs by domain under ``PAIRS``."""

PAIRS = "pairs"


@dataclass(frozen=True)
class Verdict:
    """The closest release, None if no numbers are known, and the differences from it, as sentences."""

    release: Release | None
    differences: tuple[str, ...]

    @property
    def is_wrong(self) -> bool:
        """Return whether the images differ from numbers that are certain."""
        return bool(self.differences) and self.release is not None and self.release.certain

    @property
    def matched(self) -> str | None:
        """The name of the release that the images match, None if there is none."""
        return self.release.name if self.release and not self.differences else None


def count_images(root: Path, spec: KnownSpec, rules: FileRules | None = None) -> Counts:
    """Count the images of the domains below the data root; a site may have only one of them.

    ``rules``: what the file of a user's own data set says; None: what a file in the data root says. Known bad files are
    counted. Raises DataError if no domain exists, and, as opening a domain does, for class folders that are missing,
    empty or unexpected, for images or masks without the other, for unusable data lists, for links out of the root, and
    for broken files of MNIST and lists of CelebA.
    """
    if isinstance(spec, RotatedSpec):
        labels = {part: read_part(root, part, spec.size)[1].tolist() for part in PARTS}
        return {part: _by_class([spec.classes[label] for label in labels[part]], spec.classes) for part in PARTS}
    if isinstance(spec, PublishedSpec):
        return {domain: _by_label(published_domain(root, spec, domain)[1], spec) for domain in spec.domains}
    if isinstance(spec, AttributeSpec):
        return {domain: _by_label(list_attributed(root, spec, domain)[1], spec) for domain in spec.domains}
    present = [domain for domain in spec.domains if _is_there(root, spec, domain)]
    if not present:
        raise DataError(f"folder {root / spec.folder} holds no domain; expected one of {', '.join(spec.domains)}.")
    return {domain: _count_domain(root, spec, domain, rules) for domain in present}


def judge(counts: Counts, spec: KnownSpec) -> Verdict:
    """Compare the counts with the release of the data set that has the fewest differing domains."""
    releases = () if spec.described else origin_of(spec.name).releases
    if not releases:
        return Verdict(None, ())
    verdicts = [Verdict(release, tuple(_differences(counts, spec, release))) for release in releases]
    return min(verdicts, key=lambda verdict: len(verdict.differences))


def _is_there(root: Path, spec: ImageFolderSpec | SegmentationSpec, domain: str) -> bool:
    """Return whether a domain has a folder, or a data list beside the folders."""
    if (root / spec.folder / domain).exists():
        return True
    return isinstance(spec, SegmentationSpec) and find_data_list(root, spec, domain) is not None


def _count_domain(
    root: Path, spec: ImageFolderSpec | SegmentationSpec, domain: str, rules: FileRules | None
) -> dict[str, int]:
    if rules is None:
        rules = rules_of(root, None) if spec.described else NO_RULES
    if isinstance(spec, SegmentationSpec):
        return {PAIRS: len(list_pairs(root, spec, domain, rules)[0].all)}
    samples, skipped, _ = list_domain(existing_folders(root, spec, domain), spec, domain, rules)
    known_bad = () if spec.described else skipped
    files = [*(sample.file for sample in samples), *known_bad]
    return _by_class([file.split("/")[-2] for file in files], spec.classes)


def _by_label(samples: Sequence[Sample], spec: KnownSpec) -> dict[str, int]:
    return _by_class([spec.classes[sample.label] for sample in samples], spec.classes)


def _by_class(names: list[str], classes: tuple[str, ...]) -> dict[str, int]:
    found = Counter(names)
    return {name: found[name] for name in classes}


def _differences(counts: Counts, spec: KnownSpec, release: Release) -> Iterator[str]:
    """Yield one sentence for each domain whose total, or whose counts by class, differ from the release."""
    for domain, by_class in counts.items():
        total, expected = sum(by_class.values()), release.images[domain]
        where = _where(by_class, dict(zip(spec.classes, release.by_class.get(domain, ()), strict=False)))
        if total != expected or where:
            yield f"{domain} has {total:,} images, expected {expected:,}{where}"


def _where(by_class: Mapping[str, int], known: Mapping[str, int]) -> str:
    """Return the first classes whose counts differ from the known ones, in brackets; ``""`` if none does."""
    wrong = [f"{name} {by_class[name]:,} of {number:,}" for name, number in known.items() if by_class[name] != number]
    more = ", ..." if len(wrong) > 3 else ""
    return f" ({', '.join(wrong[:3])}{more})" if wrong else ""
