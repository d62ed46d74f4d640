# SPDX-License-Identifier: Apache-2.0
"""Opening a domain: what is listed, what is left out, and every folder that is refused with its name."""

from pathlib import Path

import pytest

from fdg_plugins.data import PACS, DomainData, ImageFiles, open_domain
from fdg_plugins.errors import DataError

IMAGES_PER_CLASS = 5


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root with the domains photo and sketch; the files are empty, since opening a domain reads none."""
    for domain in ("photo", "sketch"):
        for name in PACS.classes:
            folder = tmp_path / "root" / "pacs" / domain / name
            folder.mkdir(parents=True)
            for number in range(IMAGES_PER_CLASS):
                (folder / f"056_{number:04d}.jpg").touch()
    return tmp_path / "root"


def open_photo(root: Path) -> DomainData:
    return open_domain(root, "pacs", "photo", seed=1)


def test_a_domain_lists_every_image_in_order_under_the_label_of_its_folder(root: Path) -> None:
    data = open_photo(root)
    files = [f"photo/{name}/056_{number:04d}.jpg" for name in PACS.classes for number in range(IMAGES_PER_CLASS)]
    assert [sample.file for sample in data.test] == files
    assert all(data.classes[sample.label] == sample.file.split("/")[1] for sample in data.test)
    assert sorted(s.file for s in (*data.train, *data.validation)) == files
    assert (data.dataset, data.domain, data.classes) == ("pacs", "photo", PACS.classes)
    assert (data.split, data.skipped, data.images) == ("pacs/90-10@1", (), ImageFiles(root.resolve() / "pacs"))
    assert len(data.split_hash) == 16


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_the_known_bad_sketch_is_skipped_but_not_its_namesakes(root: Path, suffix: str) -> None:
    folder = root / "pacs" / "sketch" / "dog"
    for stem in ("n02103406_4068-1", "n02103406_4068-10"):
        (folder / f"{stem}{suffix}").touch()
    data = open_domain(root, "pacs", "sketch", seed=1)
    assert data.skipped == (f"sketch/dog/n02103406_4068-1{suffix}",)
    assert f"sketch/dog/n02103406_4068-10{suffix}" in {sample.file for sample in data.test}
    assert not set(data.skipped) & {sample.file for sample in (*data.train, *data.validation, *data.test)}


def test_official_lists_in_the_data_root_are_used(root: Path) -> None:
    (root / "pacs" / "photo_train_kfold.txt").write_text("photo/dog/056_0000.jpg 1\nphoto/person/056_0001.jpg 7\n")
    (root / "pacs" / "photo_crossval_kfold.txt").write_text("photo/house/056_0003.jpg 6\n")
    data = open_photo(root)
    assert data.split == "pacs/kfold"
    assert [sample.file for sample in data.train] == ["photo/dog/056_0000.jpg", "photo/person/056_0001.jpg"]
    assert len(data.test) == 7 * IMAGES_PER_CLASS
    assert open_domain(root, "pacs", "sketch", seed=1).split == "pacs/90-10@1"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "root is not a folder"),
        ("pacs", "pacs is not a folder"),
        ("pacs/photo", "photo is not a folder"),
    ],
)
def test_a_missing_folder_is_named(root: Path, path: str, message: str) -> None:
    (root / path).rename(root.parent / "away")
    with pytest.raises(DataError, match=f"{message}.*expected"):
        open_photo(root)


def test_an_unexpected_class_folder_is_named(root: Path) -> None:
    (root / "pacs" / "photo" / "zebra").mkdir()
    with pytest.raises(DataError, match="unexpected class folder zebra; expected exactly dog, elephant"):
        open_photo(root)


@pytest.mark.parametrize(("given", "hint"), [("pacs", "use its parent"), ("..", "root holds pacs/: use it")])
def test_a_data_root_one_level_off_is_told_where_the_data_set_is(root: Path, given: str, hint: str) -> None:
    for domain in PACS.domains:
        (root / "pacs" / domain).mkdir(exist_ok=True)
    with pytest.raises(DataError, match=hint):
        open_domain((root / given).resolve(), "pacs", "photo", seed=1)


@pytest.mark.parametrize("path", ["pacs", "pacs/photo", "pacs/photo/dog", "pacs/photo/dog/056_0000.jpg"])
def test_a_link_out_of_the_data_root_is_refused_at_every_depth(root: Path, path: str) -> None:
    target = (root / path).rename(root.parent / "outside")
    (root / path).symlink_to(target)
    with pytest.raises(DataError, match=f"{path} is a link out of the data root"):
        open_photo(root)


# --- one domain at several sites --------------------------------------------------------------------


def test_a_site_with_a_part_holds_its_share_and_tests_on_the_whole_domain(root: Path) -> None:
    whole = open_photo(root)
    first, second = (open_domain(root, "pacs", "photo", seed=1, part=(number, 2)) for number in (1, 2))
    assert (len(first.train), len(second.train)) == (14, 14)
    assert sorted([len(first.validation), len(second.validation)]) == [3, 4]
    assert {*first.train, *second.train} == set(whole.train)
    assert {*first.validation, *second.validation} == set(whole.validation)
    assert first.test == second.test == whole.test
    name = f"pacs/90-10@1/equal@1-{whole.split_hash}"
    assert (first.split, second.split) == (f"{name}/part1of2", f"{name}/part2of2")
    assert len({whole.split_hash, first.split_hash, second.split_hash}) == 3


def test_sites_whose_copies_have_other_labels_differ_in_the_name_of_their_parts(root: Path) -> None:
    """The census then refuses them: which images are for training follows from the labels, so parts would overlap."""
    here = open_domain(root, "pacs", "photo", seed=1, part=(1, 2))
    (root / "pacs" / "photo" / "dog" / "056_0000.jpg").rename(root / "pacs" / "photo" / "horse" / "moved.jpg")
    there = open_domain(root, "pacs", "photo", seed=1, part=(2, 2))
    assert here.split.rsplit("/part", 1)[0] != there.split.rsplit("/part", 1)[0]


@pytest.mark.parametrize("how", ["missing", "empty", "known bad only", "left by Windows"])
def test_a_class_without_images_is_absent_and_the_labels_of_the_others_stay(root: Path, how: str) -> None:
    expected = {sample.file: sample.label for sample in open_domain(root, "pacs", "sketch", seed=1).test}
    folder = root / "pacs" / "sketch" / "dog"
    for file in folder.iterdir():
        file.unlink()
    if how == "missing":
        folder.rmdir()
    if how == "known bad only":
        (folder / "n02103406_4068-1.jpg").touch()
    if how == "left by Windows":
        (folder / "Thumbs.db").touch()
    data = open_domain(root, "pacs", "sketch", seed=1)
    kept = {file: label for file, label in expected.items() if label != PACS.classes.index("dog")}
    assert {sample.file: sample.label for sample in data.test} == kept
    assert data.classes == PACS.classes
