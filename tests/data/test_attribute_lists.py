# SPDX-License-Identifier: Apache-2.0
"""CelebA's lists and images: what is read of files made by hand, what is refused, and who is told the attribute."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fdg_plugins.cli.data_tables import datasets_table
from fdg_plugins.data import (
    CELEBA,
    AttributeSample,
    DomainData,
    Partition,
    check_images,
    evaluation_batches,
    open_domain,
    reported_batches,
    training_epochs,
    without_damaged,
)
from fdg_plugins.data.attribute_lists import list_attributed
from fdg_plugins.data.unfinished import MANIFEST
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation import find_changes, open_source, prepare, read_manifest
from fdg_plugins.lab.preparation.counts import count_images
from fdg_plugins.plugins.files import load_file
from tests.data.face_lists import FACES, HEADER, attribute_lines, part_lines, write_celeba, write_lines

IMAGES = CELEBA.image_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data set's folder, which the test may damage; its parent is the data root."""
    return write_celeba(tmp_path / "root")


def opened(folder: Path, domain: str = "train") -> DomainData:
    return open_domain(folder.parent, "celeba", domain, seed=0)


@pytest.mark.parametrize(("domain", "number"), [("train", 0), ("test", 2)])
def test_the_images_of_a_part_have_the_class_and_the_attribute_of_their_line(
    folder: Path, domain: str, number: int
) -> None:
    assert list_attributed(folder.parent, CELEBA, domain)[1] == tuple(
        AttributeSample(f"{IMAGES}/{name}", 0 if blond else 1, int(male))
        for name, part, blond, male in FACES
        if part == number
    )
    assert CELEBA.classes == ("blond", "not_blond")


def test_the_order_of_lines_and_columns_decides_nothing(folder: Path) -> None:
    before = opened(folder)
    count, _, *rows = attribute_lines()
    columns = [row.split() for row in rows]
    turned = [f"{name} {male} {young} {bangs} {blond}" for name, bangs, blond, male, young in columns]
    write_lines(folder / CELEBA.attribute_list, [count, "Male Young Bangs Blond_Hair", *turned[::-1]])
    write_lines(folder / CELEBA.part_list, ["", *part_lines()[::-1]])
    assert opened(folder) == before


def test_opening_reads_no_image_and_the_census_finds_the_damaged_one(folder: Path) -> None:
    (folder / IMAGES / FACES[3][0]).write_bytes(b"no image")
    data = opened(folder)
    with pytest.raises(DataError, match=r"of the images of domain 'train' in .*, 1 cannot be read"):
        check_images(data)
    kept, damaged = without_damaged(
        data, lambda files: open_domain(folder.parent, "celeba", "train", seed=0, left_out=files)
    )
    assert damaged.unreadable == (f"{IMAGES}/{FACES[3][0]}",)
    assert kept.left_out == damaged.unreadable
    assert len(kept.test) == len(data.test) - 1


def test_an_evaluation_is_told_the_attribute_and_neither_training_nor_a_report_is(folder: Path) -> None:
    data = opened(folder)
    common: dict[str, Any] = {"image_size": 8, "batch_size": 2, "seed": 0, "scope": ("site",)}
    (images, targets), *_ = evaluation_batches(data, data.test, image_size=8, batch_size=5)
    assert targets.tolist() == [[sample.label, getattr(sample, "attribute", None)] for sample in data.test]
    assert images.shape == (5, 3, 8, 8)
    trained = [batch for epoch in training_epochs(data, **common, epochs=2) for batch in epoch]
    reported = list(reported_batches(data, **common))
    assert all(labels.dim() == 1 for _, labels in (*trained, *reported))
    assert sum(len(labels) for _, labels in trained) == 2 * len(data.train)
    assert torch.cat([labels for _, labels in reported]).tolist() == [sample.label for sample in data.train]
    assert data.images.reports_differ


def test_training_sees_the_pixels_that_an_evaluation_sees_and_so_does_another_process(folder: Path) -> None:
    data = opened(folder)
    whole, _ = next(iter(evaluation_batches(data, data.train, image_size=8, batch_size=9)))
    (batch,) = next(iter(training_epochs(data, image_size=8, batch_size=9, seed=0, scope=("x",), epochs=1)))
    assert sorted(batch[0].flatten(1).tolist()) == sorted(whole.flatten(1).tolist())
    assert type(pickle.loads(pickle.dumps(data.images))) is type(data.images)


def test_skewed_sites_share_the_images_of_training(folder: Path) -> None:
    skew = Partition("iid", least=1)
    parts = [
        open_domain(folder.parent, "celeba", "train", seed=0, part=(number, 2), partition=skew) for number in (1, 2)
    ]
    files = [sample.file for part in parts for sample in part.test]
    assert sorted(files) == [f"{IMAGES}/{name}" for name, part, _, _ in FACES if part == 0]


RECORD = """
from dataclasses import replace

from fdg_plugins.data import CELEBA

MALE = replace(CELEBA, name="celeba_male", classes=("male", "not_male"), target="Male", attribute="Blond_Hair")
"""


def test_another_attribute_is_a_record_of_ones_own(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "male.py").write_text(RECORD)
    load_file(tmp_path / "male.py")
    data = open_domain(folder.parent, "celeba_male", "test", seed=0)
    assert data.classes == ("male", "not_male")
    expected = [(0 if male else 1, int(blond)) for _, part, blond, male in FACES if part == 2]
    assert [(sample.label, getattr(sample, "attribute", None)) for sample in data.test] == expected


# --- refusals ---------------------------------------------------------------------------------------


def changed(index: int, line: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [line if number == index else one for number, one in enumerate(lines)]


ATTRIBUTES: list[tuple[Callable[[list[str]], list[str]], str]] = [
    (lambda lines: [], "line 1: it is ''; expected the number of images"),
    (lambda lines: lines[1:], "line 1: it is 'Bangs .*; expected the number of images"),
    (changed(0, "11"), "line 1: it says 11 images, and 10 lines follow; expected as many lines"),
    (changed(1, "Bangs Hair Male Young"), "line 2: it names the attribute Blond_Hair 0 times; expected the names"),
    (changed(1, f"{HEADER} Male"), "line 2: it names the attribute Male 2 times; expected the names"),
    (lambda lines: lines[:1] + lines[2:], "line 2: it names the attribute Blond_Hair 0 times"),
    (changed(4, "000003.jpg -1  1"), "line 5: it has 2 values; expected 4, one for each attribute"),
    (changed(4, "000003.jpg -1  1  1  1 1"), "line 5: it has 5 values; expected 4"),
    (changed(4, "000003.jpg -1  0  1  1"), "line 5: it has the value '0'; expected 1 or -1"),
    (changed(4, "000002.jpg -1  1  1  1"), "line 5: it names 000002.jpg once more; expected each image once"),
    (changed(4, "../000003.jpg -1 1 1 1"), r"line 5: it names '\.\./000003\.jpg'; expected the name of an image file"),
    (changed(4, "/etc/a.jpg -1 1 1 1"), "line 5: it names '/etc/a.jpg'; expected the name of an image file"),
    (changed(4, "..\\a.jpg -1 1 1 1"), "line 5: it names .*; expected the name of an image file without any folder"),
    (changed(4, ".hidden.jpg -1 1 1 1"), "line 5: it names '.hidden.jpg'; expected the name of an image file"),
    (changed(4, "000003.txt -1 1 1 1"), "line 5: it names '000003.txt'; expected the name of an image file"),
    (changed(4, "000099.jpg -1 1 1 1"), "image 000003.jpg is in list_eval_partition.txt and not in list_attr_celeba"),
]
PARTS: list[tuple[Callable[[list[str]], list[str]], str]] = [
    (changed(2, "000003.jpg"), "line 3: it is '000003.jpg'; expected the name of an image and a part's number"),
    (changed(2, "000003.jpg two"), "line 3: it is '000003.jpg two'; expected the name of an image and a part's"),
    (changed(2, "000003.jpg 2 2"), "line 3: it is '000003.jpg 2 2'; expected the name of an image"),
    (changed(2, "000002.jpg 2"), "line 3: it names 000002.jpg once more; expected each image once"),
    (changed(2, "a/000003.jpg 2"), "line 3: it names 'a/000003.jpg'; expected the name of an image file"),
    (lambda lines: lines[:-1], "image 000010.jpg is in list_attr_celeba.txt and not in list_eval_partition.txt"),
    (lambda lines: [line.replace(" 0", " 1") for line in lines], "gives part 'train' .* no image of class 'blond'"),
]


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        *((CELEBA.attribute_list, change, text) for change, text in ATTRIBUTES),
        *((CELEBA.part_list, change, text) for change, text in PARTS),
    ],
)
def test_a_list_of_another_form_is_refused_by_line_and_without_its_images_in_public(
    folder: Path, name: str, change: Callable[[list[str]], list[str]], text: str
) -> None:
    lines = attribute_lines() if name == CELEBA.attribute_list else part_lines()
    write_lines(folder / name, change(lines))
    with pytest.raises(DataError, match=text) as refused:
        opened(folder)
    assert str(folder) not in str(refused.value.public)
    assert ".jpg" not in str(refused.value.public)


@pytest.mark.parametrize("name", [CELEBA.attribute_list, CELEBA.part_list])
def test_a_list_that_is_missing_or_no_text_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"\xff\xfe\x00\x9f")
    with pytest.raises(DataError, match=rf"{name} cannot be read as text \(UnicodeDecodeError\)"):
        opened(folder)
    (folder / name).unlink()
    with pytest.raises(DataError, match=rf"list {name} of CelebA is missing; expected the file "):
        opened(folder)


def test_a_listed_image_that_is_missing_is_refused_only_where_it_is_needed(folder: Path) -> None:
    (folder / IMAGES / "000003.jpg").unlink()
    assert len(opened(folder, "train").test) == 5
    with pytest.raises(DataError, match=r"of the 4 images listed .*, 1 are not in .*, such as 000003\.jpg") as refused:
        opened(folder, "test")
    assert refused.value.public == "of the 4 images listed for a part of CelebA, 1 are missing."
    for file in (folder / IMAGES).iterdir():
        file.unlink()
    (folder / IMAGES).rmdir()
    with pytest.raises(DataError, match="is missing; expected it to hold the 10 images of CelebA"):
        opened(folder)


@pytest.mark.parametrize("name", [CELEBA.attribute_list, CELEBA.part_list, IMAGES, f"{IMAGES}/000001.jpg"])
def test_a_link_out_of_the_data_root_is_refused(folder: Path, name: str, tmp_path: Path) -> None:
    (folder / name).rename(tmp_path / "outside")
    (folder / name).symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match="is a link out of the data root"):
        opened(folder)


# --- preparation ------------------------------------------------------------------------------------


def test_the_published_files_are_prepared_counted_and_compared_with_their_manifest(
    folder: Path, tmp_path: Path
) -> None:
    source = tmp_path / "download"
    (source / "Anno").mkdir(parents=True)
    (folder / IMAGES).rename(source / IMAGES)
    for name in (CELEBA.attribute_list, CELEBA.part_list):
        (folder / name).rename(source / "Anno" / name)
    (source / "Anno" / "identity_CelebA.txt").write_text("000001.jpg 2880\n")
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "identity_CelebA.txt").write_text("000001.jpg 2880\n")
    with pytest.raises(DataError, match=r"the files list_attr_celeba\.txt and list_eval_partition\.txt, and img_align"):
        prepare(CELEBA, open_source(tmp_path / "else"), tmp_path / "other")
    root = tmp_path / "prepared"
    done = prepare(CELEBA, open_source(source), root)
    assert done.counts == {"test": {"blond": 2, "not_blond": 2}, "train": {"blond": 2, "not_blond": 3}}
    assert (done.verdict.is_wrong, done.verdict.matched) == (False, None)  # numbers of which nobody is certain
    assert done.plan.left_out == ("Anno/identity_CelebA.txt",)
    manifest = read_manifest(root, CELEBA)
    assert manifest is not None
    assert len(manifest.files) == 12
    assert opened(root / "celeba").split_hash == list_hash(root)
    (root / "celeba" / IMAGES / "000001.jpg").write_bytes(b"")
    assert find_changes(root, CELEBA, manifest).changed == (f"{IMAGES}/000001.jpg",)
    assert count_images(root, CELEBA) == done.counts
    assert (root / "celeba" / MANIFEST).is_file()


def list_hash(root: Path) -> str:
    return open_domain(root, "celeba", "train", seed=0).split_hash


def test_the_table_of_data_sets_says_what_is_there(folder: Path) -> None:
    table = datasets_table(folder.parent)
    names, found = (list(table.columns[position].cells) for position in (0, -1))
    assert found[names.index("celeba")] == "3 of 3 lists and folders"
