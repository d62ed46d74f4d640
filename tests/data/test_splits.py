# SPDX-License-Identifier: Apache-2.0
"""Properties of splits: disjoint, complete, stratified, stable; and the official lists, read and refused."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.data.catalogue import PACS
from fdg_plugins.data.specs import Sample
from fdg_plugins.data.splits import Split, listed_split, part_of, seeded_split
from fdg_plugins.errors import DataError, SettingsError

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


def write_list(path: Path, samples: Iterable[Sample], *, suffix: str = ".jpg") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{sample.stem}{suffix} {sample.label + 1}\n" for sample in samples))


def write_lists(folder: Path, samples: list[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Write lists in which every fourth image is for validation, and return both parts."""
    train = [sample for i, sample in enumerate(samples) if i % 4]
    validation = samples[::4]
    write_list(folder / "photo_train_kfold.txt", train)
    write_list(folder / "photo_crossval_kfold.txt", validation)
    return train, validation


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
    with pytest.raises(SettingsError, match="'photo' has 77 training and 7 validation images; expected at least 8"):
        part_of(split, PACS, "photo", (1, 8), seed=1)


# --- the official lists -----------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["train", "crossval"])
def test_one_list_without_the_other_is_refused(tmp_path: Path, missing: str) -> None:
    samples = samples_of(TWELVE_EACH)
    write_lists(tmp_path / "pacs" / "splits", samples)
    (tmp_path / "pacs" / "splits" / f"photo_{missing}_kfold.txt").unlink()
    with pytest.raises(DataError, match=rf"splits lacks photo_{missing}_kfold\.txt"):
        listed_split(samples, PACS, "photo", tmp_path, seed=0)


@pytest.mark.parametrize(
    "line",
    [
        "photo/dog/056_0001.jpg 0",
        "photo/dog/056_0001.jpg 8",
        "photo/dog/056_0001.jpg 2",
        "photo/dog/056_9999.jpg 1",
        "../../secret.jpg 1",
        "photo/dog/056_0001.jpg",
        "photo/dog/056_0001.jpg one",
        "photo/dog/056_0001.jpg -1",
        "photo/dog/056_0002.jpg 1",
    ],
)
def test_a_line_that_does_not_fit_the_images_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    samples = samples_of(TWELVE_EACH)
    write_list(tmp_path / "pacs" / "photo_crossval_kfold.txt", samples[20:])
    (tmp_path / "pacs" / "photo_train_kfold.txt").write_text(f"photo/dog/056_0002.jpg 1\n\n{line}\n")
    with pytest.raises(DataError, match=r"photo_train_kfold\.txt, line 3") as caught:
        listed_split(samples, PACS, "photo", tmp_path, seed=0)
    assert ".jpg" not in caught.value.public


def test_overlapping_lists_are_refused(tmp_path: Path) -> None:
    samples = samples_of(TWELVE_EACH)
    write_list(tmp_path / "pacs" / "photo_train_kfold.txt", samples[:50])
    write_list(tmp_path / "pacs" / "photo_crossval_kfold.txt", samples[49:])
    with pytest.raises(DataError, match=rf"image {samples[49].file} is for training and for validation"):
        listed_split(samples, PACS, "photo", tmp_path, seed=0)


@pytest.mark.parametrize(("content", "message"), [(b"\n\n", "names no image"), (b"\xff\xfe\x00", "as text")])
def test_an_empty_or_binary_list_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    samples = samples_of(TWELVE_EACH)
    write_lists(tmp_path / "pacs", samples)
    (tmp_path / "pacs" / "photo_crossval_kfold.txt").write_bytes(content)
    with pytest.raises(DataError, match=rf"list .*photo_crossval_kfold\.txt .*{message}"):
        listed_split(samples, PACS, "photo", tmp_path, seed=0)


def test_a_list_that_is_a_link_out_of_the_data_root_is_refused(tmp_path: Path) -> None:
    samples = samples_of(TWELVE_EACH)
    write_lists(tmp_path / "root" / "pacs", samples)
    link = tmp_path / "root" / "pacs" / "photo_train_kfold.txt"
    link.symlink_to(link.rename(tmp_path / "elsewhere.txt"))
    with pytest.raises(DataError, match=r"photo_train_kfold\.txt is a link out of the data root"):
        listed_split(samples, PACS, "photo", tmp_path / "root", seed=0)


def part_three_of_five(split: Split, domain: str = "photo", seed: int = 1) -> Split:
    return part_of(split, PACS, domain, (3, 5), seed=seed)


def test_seed_and_domain_decide_the_parts_and_the_name_says_which_one_it_is() -> None:
    split = seeded_split(samples_of(TWELVE_EACH), PACS, "photo", seed=1)
    part = part_three_of_five(split)
    assert part == part_three_of_five(split)
    assert part.name == f"pacs/90-10@1/equal@1-{split.digest}/part3of5"
    assert part.digest not in {part_three_of_five(split, seed=2).digest, part_three_of_five(split, "sketch").digest}
