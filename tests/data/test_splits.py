# SPDX-License-Identifier: Apache-2.0
"""Properties of splits: disjoint, complete, stratified, stable; and the official lists, read and refused."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.data.catalogue import PACS
from fdg_plugins.data.listing import list_domain
from fdg_plugins.data.specs import Sample
from fdg_plugins.data.splits import Split, part_of, seeded_split, split_of
from fdg_plugins.errors import SettingsError
from tests.data.conftest import move_out, refused, write_pacs

REPEATABLE = settings(derandomize=True, deadline=None)
CLASS_SIZES = st.lists(st.integers(1, 40), min_size=7, max_size=7)
SEEDS = st.integers(0, 2**31)


def samples_of(sizes: Iterable[int]) -> list[Sample]:
    """Return images named as PACS names them, ``sizes[c]`` of class ``c``."""
    return [
        Sample(f"photo/{PACS.classes[label]}/056_{number:04d}.jpg", label)
        for label, size in enumerate(sizes)
        for number in range(size)
    ]


def files_of(samples: Iterable[Sample]) -> list[str]:
    return sorted(sample.file for sample in samples)


@REPEATABLE
@given(sizes=CLASS_SIZES, seed=SEEDS, thin=st.integers(7, 300) | st.none())
def test_a_seeded_split_is_disjoint_and_complete_or_thinned_with_some_of_every_class(
    sizes: list[int], seed: int, thin: int | None
) -> None:
    samples = samples_of(sizes)
    split = seeded_split(samples, PACS, "photo", seed=seed, max_samples=thin)
    assert files_of((*split.train, *split.validation)) == files_of(split.test)
    assert len(split.test) == min(thin or len(samples), len(samples))
    kept = Counter(sample.label for sample in split.test)
    assert all(kept[label] >= min(size, 2 if thin is None or thin >= 14 else 1) for label, size in enumerate(sizes))


def test_the_digest_covers_test_images_that_are_for_nothing_else() -> None:
    first, second, third = samples_of([1, 1, 1, 0, 0, 0, 0])
    apart = Split((first,), (second,), (third,), "listed")
    without, within = Split((first,), (second,), (), ""), Split((first,), (second, third), (), "")
    assert len({split.digest for split in (apart, without, within)}) == 3
    assert Split((first,), (second,), (first, second, third), "").digest == apart.digest, "each image has one line"


@REPEATABLE
@given(sizes=CLASS_SIZES, seed=SEEDS, data=st.data())
def test_parts_are_disjoint_together_complete_and_of_even_size(
    sizes: list[int], seed: int, data: st.DataObject
) -> None:
    split = seeded_split(samples_of(sizes), PACS, "photo", seed=seed)
    most = min(len(split.train), len(split.validation))
    if most == 0:  # one image in each class: nothing to divide
        return
    count = data.draw(st.integers(1, most), label="count")
    parts = [part_of(split, PACS, "photo", (number, count), seed=seed) for number in range(1, count + 1)]
    for purpose in ("train", "validation"):
        held = [getattr(part, purpose) for part in parts]
        assert files_of(sample for part in held for sample in part) == files_of(getattr(split, purpose))
        assert max(map(len, held)) - min(map(len, held)) <= 1
        assert all([sample.file for sample in part] == files_of(part) for part in held)
    assert all(part.test == split.test for part in parts)


def test_seed_and_domain_decide_the_parts_of_which_there_are_not_more_than_images() -> None:
    split = seeded_split(samples_of([12] * 7), PACS, "photo", seed=1)
    part = part_of(split, PACS, "photo", (3, 5), seed=1)
    assert part.name == f"pacs/90-10@1/equal@1-{split.digest}/part3of5"
    others = [part_of(split, PACS, domain, (3, 5), seed=seed).digest for domain, seed in (("photo", 2), ("sketch", 1))]
    assert part.digest not in others
    assert part_of(split, PACS, "photo", (7, 7), seed=1).validation
    with pytest.raises(SettingsError):
        part_of(split, PACS, "photo", (1, 8), seed=1)
    with pytest.raises(SettingsError):
        seeded_split(split.test, PACS, "photo", seed=1, max_samples=6)  # of 7 classes


SAMPLES = samples_of([12] * 7)


def write_list(path: Path, samples: Iterable[Sample]) -> None:
    path.write_text("".join(f"{sample.file.removesuffix('jpg')}jpeg {sample.label + 1}\n" for sample in samples))


def listed(folder: Path) -> Split:
    return split_of(list_domain(folder.parent, PACS, "photo"), PACS, "photo", seed=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data set's folder, with lists in which every fourth image is for validation; suffixes are others."""
    folder = write_pacs(tmp_path / "root", each=12) / "pacs"
    write_list(folder / "photo_train_kfold.txt", [sample for i, sample in enumerate(SAMPLES) if i % 4])
    write_list(folder / "photo_crossval_kfold.txt", SAMPLES[::4])
    return folder


def test_official_lists_divide_a_domain_and_one_alone_is_refused(folder: Path) -> None:
    split = listed(folder)
    assert (split.name, len(split.train), len(split.test)) == ("pacs/kfold", 63, 84)
    assert files_of(split.validation) == files_of(SAMPLES[::4])
    write_list(folder / "photo_test_kfold.txt", SAMPLES[:5])
    assert listed(folder).test == tuple(SAMPLES[:5])
    (folder / "photo_train_kfold.txt").unlink()
    with refused("lists", folder):
        listed(folder)


@pytest.mark.parametrize("end", ["056_0001.jpg 2", "056_0001.jpg", "056_9999.jpg 1", "056_0002.jpg 1", "../a.jpg 1"])
def test_a_line_that_does_not_fit_the_images_is_refused_with_its_number(folder: Path, end: str) -> None:
    (folder / "photo_train_kfold.txt").write_text(f"photo/dog/056_0002.jpg 1\n\nphoto/dog/{end}\n")
    with refused("line 3", "photo_train_kfold.txt"):
        listed(folder)


def test_a_list_that_is_a_link_out_is_refused(folder: Path) -> None:
    move_out(folder / "photo_train_kfold.txt", folder.parent)
    with refused("link"):
        listed(folder)
