# SPDX-License-Identifier: Apache-2.0
"""Properties of splits: disjoint, complete, stratified, stable; and the official lists, read and refused."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.data.catalogue import PACS
from fdg_plugins.data.specs import Sample, without_suffix
from fdg_plugins.data.splits import KFOLD_FOLDERS, Split, listed_split, part_of, seeded_split, shares
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


@REPEATABLE
@given(sizes=CLASS_SIZES, seed=SEEDS)
def test_every_class_gives_a_tenth_to_validation_and_at_least_one_image(sizes: list[int], seed: int) -> None:
    split = seeded_split(samples_of(sizes), PACS, "photo", seed=seed)
    validation = counts(split.validation)
    for label, size in enumerate(sizes):
        assert abs(validation[label] - size / 10) <= (0.5 if size >= 5 else 1.0)
        assert validation[label] >= (size > 1)
        assert counts(split.train)[label] >= 1


@REPEATABLE
@given(sizes=CLASS_SIZES, seed=SEEDS, shuffle=st.randoms(use_true_random=False), thin=st.none() | st.integers(7, 90))
def test_the_split_does_not_depend_on_the_order_of_files(
    sizes: list[int], seed: int, shuffle: Random, thin: int | None
) -> None:
    samples = samples_of(sizes)
    shuffled = list(samples)
    shuffle.shuffle(shuffled)
    first = seeded_split(samples, PACS, "photo", seed=seed, max_samples=thin)
    assert seeded_split(shuffled, PACS, "photo", seed=seed, max_samples=thin) == first


def test_seed_domain_and_class_each_draw_on_their_own() -> None:
    samples = samples_of(TWELVE_EACH)
    split = seeded_split(samples, PACS, "photo", seed=1)
    assert split.digest != seeded_split(samples, PACS, "photo", seed=2).digest
    assert split.validation != seeded_split(samples, PACS, "cartoon", seed=1).validation
    assert len({sample.file.rpartition("/")[2] for sample in split.validation}) > 1
    grown = seeded_split(samples_of([12] * 6 + [30]), PACS, "photo", seed=1)
    assert [s for s in grown.validation if s.label < 6] == [s for s in split.validation if s.label < 6]


def test_the_name_says_seed_and_thinning() -> None:
    samples = samples_of(TWELVE_EACH)
    assert seeded_split(samples, PACS, "photo", seed=3).name == "pacs/90-10@3"
    assert seeded_split(samples, PACS, "photo", seed=3, max_samples=20).name == "pacs/90-10@3/max20"
    assert seeded_split(samples, PACS, "photo", seed=3, max_samples=84).name == "pacs/90-10@3"


def test_the_digest_covers_test_images_that_are_for_nothing_else() -> None:
    first, second, third = samples_of([1, 1, 1, 0, 0, 0, 0])
    apart = Split((first,), (second,), (third,), "listed")
    without, within = Split((first,), (second,), (), ""), Split((first,), (second, third), (), "")
    assert len({split.digest for split in (apart, without, within)}) == 3
    assert Split((first,), (second,), (first, second, third), "").digest == apart.digest, "each image has one line"


def test_the_digest_tells_training_from_validation_and_ignores_order() -> None:
    first, second = samples_of([1, 1, 0, 0, 0, 0, 0])
    split = seeded_split([first, second], PACS, "photo", seed=0)
    # echo -ne 'train photo/dog/056_0000.jpg 0\ntrain photo/elephant/056_0000.jpg 1\n' | sha256sum
    assert split.digest == "8fc1e20850855704"
    swapped = type(split)((first,), (second,), split.test, split.name)
    assert swapped.digest != split.digest
    assert type(split)((second, first), (), split.test, split.name).digest == split.digest


# --- thinning ---------------------------------------------------------------------------------------


@REPEATABLE
@given(sizes=CLASS_SIZES, seed=SEEDS, thin=st.integers(7, 300))
def test_thinning_keeps_that_many_and_some_of_every_class(sizes: list[int], seed: int, thin: int) -> None:
    split = seeded_split(samples_of(sizes), PACS, "photo", seed=seed, max_samples=thin)
    kept = counts(split.test)
    assert len(split.test) == len(split.train) + len(split.validation) == min(thin, sum(sizes))
    least = 2 if thin >= 14 else 1
    assert all(kept[label] >= min(size, least) for label, size in enumerate(sizes))


def test_which_images_thinning_keeps_follows_from_seed_and_domain() -> None:
    def kept(seed: int, domain: str = "photo") -> set[str]:
        split = seeded_split(samples_of(TWELVE_EACH), PACS, domain, seed=seed, max_samples=14)
        return {sample.file for sample in split.test}

    assert kept(1) == kept(1)
    assert kept(1) != kept(2)
    assert kept(1) != kept(1, "cartoon")


@REPEATABLE
@given(sizes=st.lists(st.integers(0, 50), min_size=1, max_size=8), total=st.integers(0, 300))
def test_shares_without_minimum_are_within_one_image_of_proportional(sizes: list[int], total: int) -> None:
    result = shares(sizes, total, 0)
    total = min(total, sum(sizes))
    assert sum(result) == total
    assert all(
        abs(got * sum(sizes) - size * total) < sum(sizes) for got, size in zip(result, sizes, strict=True) if size
    )


@pytest.mark.parametrize("seed", range(20))
def test_each_share_goes_to_the_group_that_is_furthest_below_its_own(seed: int) -> None:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(0, 12, generator.integers(1, 9)).tolist()
    total, minimum = int(generator.integers(0, 40)), int(generator.integers(0, 3))
    wanted = min(total, sum(sizes))
    counts = shares(sizes, min(wanted, sum(min(size, minimum) for size in sizes)), minimum)
    while sum(counts) < wanted:
        below = [(size * wanted - count * sum(sizes), count < size) for size, count in zip(sizes, counts, strict=True)]
        counts[
            max((place for place, (_, is_open) in enumerate(below) if is_open), key=lambda i: (below[i][0], -i))
        ] += 1
    assert shares(sizes, total, minimum) == counts


def test_shares_serve_the_minimum_in_order_while_the_total_lasts() -> None:
    assert shares([9, 9, 9], 4, 2) == [2, 1, 1]
    assert shares([1, 9, 90], 10, 2) == [1, 2, 7]
    assert shares([3, 3], 100, 1) == [3, 3]


def test_a_limit_below_one_image_per_class_is_refused() -> None:
    with pytest.raises(SettingsError, match="max_samples is 6 for domain 'photo'; expected at least 7"):
        seeded_split(samples_of(TWELVE_EACH), PACS, "photo", seed=0, max_samples=6)


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


def part_three_of_five(split: Split, domain: str = "photo", seed: int = 1) -> Split:
    return part_of(split, PACS, domain, (3, 5), seed=seed)


def test_seed_and_domain_decide_the_parts_and_the_name_says_which_one_it_is() -> None:
    split = seeded_split(samples_of(TWELVE_EACH), PACS, "photo", seed=1)
    part = part_three_of_five(split)
    assert part == part_three_of_five(split)
    assert part.name == f"pacs/90-10@1/equal@1-{split.digest}/part3of5"
    assert part.digest not in {part_three_of_five(split, seed=2).digest, part_three_of_five(split, "sketch").digest}


def test_the_one_part_of_one_is_the_whole_split() -> None:
    split = seeded_split(samples_of(TWELVE_EACH), PACS, "photo", seed=1)
    assert part_of(split, PACS, "photo", (1, 1), seed=1) == split


@pytest.mark.parametrize("part", [(0, 3), (4, 3), (-1, 3), (1, 0)])
def test_a_number_out_of_range_is_refused(part: tuple[int, int]) -> None:
    split = seeded_split(samples_of(TWELVE_EACH), PACS, "photo", seed=1)
    with pytest.raises(SettingsError, match=rf"part of domain 'photo' is {part[0]} of {part[1]}; expected a number"):
        part_of(split, PACS, "photo", part, seed=1)


def test_more_parts_than_validation_images_are_refused() -> None:
    split = seeded_split(samples_of(TWELVE_EACH), PACS, "photo", seed=1)
    assert part_of(split, PACS, "photo", (7, 7), seed=1).validation
    with pytest.raises(SettingsError, match="'photo' has 77 training and 7 validation images; expected at least 8"):
        part_of(split, PACS, "photo", (1, 8), seed=1)


# --- the official lists -----------------------------------------------------------------------------


def test_without_lists_there_is_no_listed_split(tmp_path: Path) -> None:
    assert listed_split(samples_of(TWELVE_EACH), PACS, "photo", tmp_path, seed=0) is None


@pytest.mark.parametrize("folder", KFOLD_FOLDERS)
@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_lists_are_found_in_each_place_and_matched_without_suffix(tmp_path: Path, folder: str, suffix: str) -> None:
    samples = samples_of(TWELVE_EACH)
    write_list(tmp_path / "pacs" / folder / "photo_train_kfold.txt", samples[10:], suffix=suffix)
    write_list(tmp_path / "pacs" / folder / "photo_crossval_kfold.txt", samples[:10], suffix=suffix)
    split = listed_split(samples, PACS, "photo", tmp_path, seed=0)
    assert split is not None
    assert (split.train, split.validation, split.test) == (tuple(samples[10:]), tuple(samples[:10]), tuple(samples))
    assert split.name == "pacs/kfold"


def test_lists_of_another_domain_do_not_count(tmp_path: Path) -> None:
    write_lists(tmp_path / "pacs", samples_of(TWELVE_EACH))
    assert listed_split(samples_of(TWELVE_EACH, "sketch"), PACS, "sketch", tmp_path, seed=0) is None


def test_a_test_list_says_what_a_held_out_domain_is_judged_on(tmp_path: Path) -> None:
    samples = samples_of(TWELVE_EACH)
    write_lists(tmp_path / "pacs", samples)
    write_list(tmp_path / "pacs" / "photo_test_kfold.txt", samples[:50])
    split = listed_split(samples, PACS, "photo", tmp_path, seed=0)
    assert split is not None
    assert split.test == tuple(samples[:50])


def test_the_known_bad_image_is_dropped_from_lists_too(tmp_path: Path) -> None:
    samples = samples_of(TWELVE_EACH, "sketch")
    write_list(tmp_path / "pacs" / "sketch_train_kfold.txt", [*samples[1:], Sample(PACS.known_bad[0] + ".png", 0)])
    write_list(tmp_path / "pacs" / "sketch_crossval_kfold.txt", samples[:1])
    split = listed_split(samples, PACS, "sketch", tmp_path, seed=0)
    assert split is not None
    assert split.train == tuple(samples[1:])


@pytest.mark.parametrize("thin", [14, 30, 61])
def test_thinned_lists_keep_their_parts_and_both_parts_of_every_class(tmp_path: Path, thin: int) -> None:
    samples = samples_of(TWELVE_EACH)
    train, validation = write_lists(tmp_path / "pacs", samples)
    split = listed_split(samples, PACS, "photo", tmp_path, seed=0, max_samples=thin)
    assert split is not None
    assert set(split.train) <= set(train)
    assert set(split.validation) <= set(validation)
    assert len(split.train) + len(split.validation) == len(split.test) == thin
    assert set(counts(split.train)) == set(counts(split.validation)) == set(range(7))
    assert split.name == f"pacs/kfold/max{thin}"


@pytest.mark.parametrize("missing", ["train", "crossval"])
def test_one_list_without_the_other_is_refused(tmp_path: Path, missing: str) -> None:
    samples = samples_of(TWELVE_EACH)
    write_lists(tmp_path / "pacs" / "splits", samples)
    (tmp_path / "pacs" / "splits" / f"photo_{missing}_kfold.txt").unlink()
    with pytest.raises(DataError, match=rf"splits lacks photo_{missing}_kfold\.txt"):
        listed_split(samples, PACS, "photo", tmp_path, seed=0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("photo/dog/056_0001.jpg 0", "label 0 is out of range; expected 1 to 7"),
        ("photo/dog/056_0001.jpg 8", "label 8 is out of range"),
        ("photo/dog/056_0001.jpg 2", r"photo/dog/056_0001\.jpg has label 2; expected 1 \(dog\)"),
        ("photo/dog/056_9999.jpg 1", r"0 images of domain photo match photo/dog/056_9999\.jpg"),
        ("../../secret.jpg 1", r"0 images of domain photo match \.\./\.\./secret\.jpg"),
        ("photo/dog/056_0001.jpg", "got 'photo/dog/056_0001.jpg'; expected 'photo/<class>/<file> <label>'"),
        ("photo/dog/056_0001.jpg one", "got 'photo/dog/056_0001.jpg one'"),
        ("photo/dog/056_0001.jpg -1", "got 'photo/dog/056_0001.jpg -1'"),
        ("photo/dog/056_0002.jpg 1", r"image photo/dog/056_0002\.jpg is named twice"),
    ],
)
def test_a_line_that_does_not_fit_the_images_is_refused_with_its_number(
    tmp_path: Path, line: str, message: str
) -> None:
    samples = samples_of(TWELVE_EACH)
    write_list(tmp_path / "pacs" / "photo_crossval_kfold.txt", samples[20:])
    (tmp_path / "pacs" / "photo_train_kfold.txt").write_text(f"photo/dog/056_0002.jpg 1\n\n{line}\n")
    with pytest.raises(DataError, match=rf"photo_train_kfold\.txt, line 3: ({message})"):
        listed_split(samples, PACS, "photo", tmp_path, seed=0)


def test_a_list_that_fits_two_images_is_refused(tmp_path: Path) -> None:
    samples = [*samples_of(TWELVE_EACH), Sample("photo/dog/056_0000.jpeg", 0)]
    write_list(tmp_path / "pacs" / "photo_crossval_kfold.txt", samples[20:-1])
    write_list(tmp_path / "pacs" / "photo_train_kfold.txt", samples[:1], suffix=".png")
    with pytest.raises(DataError, match="line 1: 2 images of domain photo match"):
        listed_split(samples, PACS, "photo", tmp_path, seed=0)
    write_list(tmp_path / "pacs" / "photo_train_kfold.txt", samples[:1], suffix=".jpeg")
    split = listed_split(samples, PACS, "photo", tmp_path, seed=0)
    assert split is not None
    assert split.train == (samples[-1],)


def test_overlapping_lists_are_refused(tmp_path: Path) -> None:
    samples = samples_of(TWELVE_EACH)
    write_list(tmp_path / "pacs" / "photo_train_kfold.txt", samples[:50])
    write_list(tmp_path / "pacs" / "photo_crossval_kfold.txt", samples[49:])
    with pytest.raises(DataError, match=rf"image {samples[49].file} is named by both .*train.* and .*crossval"):
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


@pytest.mark.parametrize(
    ("file", "stem"), [("a/b.c.jpg", "a/b.c"), ("a.d/b", "a.d/b"), ("a/.hidden", "a/.hidden"), ("b.jpg", "b")]
)
def test_only_the_suffix_of_the_last_part_is_cut(file: str, stem: str) -> None:
    assert without_suffix(file) == stem
