# SPDX-License-Identifier: Apache-2.0
"""Properties of splits: disjoint, complete, stratified, stable; and the official lists, read and refused."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.data.catalogue import PACS
from fdg_plugins.data.folders import list_domain
from fdg_plugins.data.specs import Sample
from fdg_plugins.data.splits import Split, part_of, seeded_split, split_of
from fdg_plugins.errors import SettingsError
from tests.data.conftest import Refused

REPEATABLE = settings(derandomize=True, deadline=None)
CLASS_SIZES = st.lists(st.integers(1, 40), min_size=7, max_size=7)
SEEDS = st.integers(0, 2**31)
TWELVE_EACH = [12] * 7


def samples_of(sizes: Iterable[int], domain: str = "photo") -> list[Sample]:
    """Return images named as PACS names them, ``sizes[c]`` of class ``c``."""
    return [
        Sample(f"{domain}/{PACS.classes[label]}/056_{number:04d}.jpg", label)
        for label, size in enumerate(sizes)
        for number in range(size)
    ]


def counts(samples: Iterable[Sample]) -> Counter[int]:
    return Counter(sample.label for sample in samples)


# --- the seeded split -------------------------------------------------------------------------------


@REPEATABLE
@given(sizes=CLASS_SIZES, seed=SEEDS)
def test_training_and_validation_are_disjoint_and_together_complete(sizes: list[int], seed: int) -> None:
    samples = samples_of(sizes)
    split = seeded_split(samples, PACS, "photo", seed=seed)
    assert sorted((*split.train, *split.validation), key=lambda sample: sample.file) == sorted(
        samples, key=lambda sample: sample.file
    )
    assert set(split.test) == set(samples)


def test_the_digest_covers_test_images_that_are_for_nothing_else() -> None:
    first, second, third = samples_of([1, 1, 1, 0, 0, 0, 0])
    apart = Split((first,), (second,), (third,), "listed")
    without, within = Split((first,), (second,), (), ""), Split((first,), (second, third), (), "")
    assert len({split.digest for split in (apart, without, within)}) == 3
    assert Split((first,), (second,), (first, second, third), "").digest == apart.digest, "each image has one line"


# --- thinning ---------------------------------------------------------------------------------------


@REPEATABLE
@given(sizes=CLASS_SIZES, seed=SEEDS, thin=st.integers(7, 300))
def test_thinning_keeps_that_many_and_some_of_every_class(sizes: list[int], seed: int, thin: int) -> None:
    split = seeded_split(samples_of(sizes), PACS, "photo", seed=seed, max_samples=thin)
    kept = counts(split.test)
    assert len(split.test) == len(split.train) + len(split.validation) == min(thin, sum(sizes))
    least = 2 if thin >= 14 else 1
    assert all(kept[label] >= min(size, least) for label, size in enumerate(sizes))


# --- parts ------------------------------------------------------------------------------------------


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
        assert sorted(s.file for part in held for s in part) == [s.file for s in getattr(split, purpose)]
        assert max(map(len, held)) - min(map(len, held)) <= 1
        assert all(list(part) == sorted(part, key=lambda sample: sample.file) for part in held)
    assert all(part.test == split.test for part in parts)


def test_more_parts_than_validation_images_are_refused() -> None:
    split = seeded_split(samples_of(TWELVE_EACH), PACS, "photo", seed=1)
    assert part_of(split, PACS, "photo", (7, 7), seed=1).validation
    with pytest.raises(SettingsError):
        part_of(split, PACS, "photo", (1, 8), seed=1)


def test_seed_and_domain_decide_the_parts_and_the_name_says_which_one_it_is() -> None:
    split = seeded_split(samples_of(TWELVE_EACH), PACS, "photo", seed=1)
    part = part_of(split, PACS, "photo", (3, 5), seed=1)
    assert part.name == f"pacs/90-10@1/equal@1-{split.digest}/part3of5"
    others = [part_of(split, PACS, domain, (3, 5), seed=seed).digest for domain, seed in (("photo", 2), ("sketch", 1))]
    assert part.digest not in others


# --- the official lists -----------------------------------------------------------------------------

SAMPLES = samples_of(TWELVE_EACH)


def write_list(path: Path, samples: Iterable[Sample]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{sample.stem}.jpeg {sample.label + 1}\n" for sample in samples))


def listed(root: Path) -> Split:
    return split_of(list_domain(root, PACS, "photo"), PACS, "photo", seed=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data set's folder, with lists in which every fourth image is for validation; suffixes are others."""
    folder = tmp_path / "root" / "pacs"
    for sample in SAMPLES:
        (folder / sample.file).parent.mkdir(parents=True, exist_ok=True)
        (folder / sample.file).touch()
    write_list(folder / "photo_train_kfold.txt", [sample for i, sample in enumerate(SAMPLES) if i % 4])
    write_list(folder / "photo_crossval_kfold.txt", SAMPLES[::4])
    return folder


def test_official_lists_divide_a_domain_and_one_alone_is_refused(folder: Path, refused: Refused) -> None:
    split = listed(folder.parent)
    assert (split.name, len(split.train), split.validation, len(split.test)) == (
        *("pacs/kfold", 63),
        *(tuple(sorted(SAMPLES[::4], key=lambda sample: sample.file)), 84),
    )
    write_list(folder / "photo_test_kfold.txt", SAMPLES[:5])
    assert listed(folder.parent).test == tuple(SAMPLES[:5])
    (folder / "photo_train_kfold.txt").unlink()
    with refused(f"folder {folder} lacks one of the lists"):
        listed(folder.parent)


@pytest.mark.parametrize(
    "line",
    [
        *("photo/dog/056_0001.jpg 2", "photo/dog/056_0001.jpg"),
        *("photo/dog/056_9999.jpg 1", "../../secret.jpg 1", "photo/dog/056_0002.jpg 1"),
    ],
)
def test_a_line_that_does_not_fit_the_images_is_refused_with_its_number(
    folder: Path, line: str, refused: Refused
) -> None:
    (folder / "photo_train_kfold.txt").write_text(f"photo/dog/056_0002.jpg 1\n\n{line}\n")
    with refused("photo_train_kfold.txt, line 3"):
        listed(folder.parent)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff\xfe\x00", "cannot be read as text"),
        (f"{SAMPLES[0].file} 1".encode(), "is for training and for validation"),
        (None, "is a link out of the data root"),
    ],
)
def test_a_list_that_is_binary_of_images_in_both_or_a_link_out_is_refused(
    folder: Path, content: bytes | None, problem: str, refused: Refused
) -> None:
    file = folder / "photo_train_kfold.txt"
    if content is None:
        file.symlink_to(file.rename(folder.parents[1] / "elsewhere.txt"))
    else:
        file.write_bytes(content)
    with refused(problem):
        listed(folder.parent)
