# SPDX-License-Identifier: Apache-2.0
"""A domain divided over many sites by its classes: the partition, its name and its hash, and each site's own split.

``equal`` divides training and validation images separately (:func:`fdg_plugins.data.splits.part_of`). The others pool
both, divide the pool (:mod:`fdg_plugins.core.partition`), and give every site three quarters of its images to train on
and a quarter, class by class, as its own test images. ``mix`` gives each site training and validation images of all
source domains (:func:`mixed_split`). Every site computes the whole partition from the seed.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fdg_plugins.core.partition import dirichlet_parts, equal_parts, mixed_part, shard_parts
from fdg_plugins.data.own_files import DATASET_FILE
from fdg_plugins.data.specs import DatasetSpec, Sample
from fdg_plugins.data.splits import Split
from fdg_plugins.errors import SettingsError
from fdg_plugins.randomness import numpy_generator

EQUAL = "equal"
MIX = "mix"
KINDS = (EQUAL, "iid", "dirichlet", "shards")
OWN_TEST = 4  # one of so many images of a site's class


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
        kept.append(tuple(sorted(found, key=lambda sample: sample.file)))
    whole = _hash(f"{name} {counts[name]} {split.digest}\n" for name, split in splits.items())
    name = f"{splits[domain].name}/{MIX}{partition.share:g}@{seed}-{whole}/part{number}of{counts[domain]}"
    return Split(kept[0], kept[1], splits[domain].test, name)


def site_splits(
    split: Split, spec: DatasetSpec, domain: str, count: int, partition: Partition, seed: int
) -> list[Split]:
    """Return the splits of all ``count`` sites of a domain; ``test`` has all images of a site, which count it."""
    pool = sorted((*split.train, *split.validation), key=lambda sample: sample.file)
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
        validation = tuple(sorted(judged, key=lambda sample: sample.file))
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
