# SPDX-License-Identifier: Apache-2.0
"""CelebA's lists and images: what is read of files made by hand, what is refused, and who is told the attribute."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fdg_plugins.data import (
    CELEBA,
    AttributeSample,
    DomainData,
    evaluation_batches,
    open_domain,
    reported_batches,
    training_epochs,
)
from fdg_plugins.data.attributes import list_attributed
from fdg_plugins.data.folders import MANIFEST
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation import find_changes, open_source, prepare, read_manifest
from fdg_plugins.lab.preparation.checks import count_images
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


# --- refusals ---------------------------------------------------------------------------------------


def changed(index: int, line: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [line if number == index else one for number, one in enumerate(lines)]


ATTRIBUTES: list[tuple[Callable[[list[str]], list[str]], int]] = [
    (lambda lines: [], 2),
    (lambda lines: lines[1:], 2),
    (changed(0, "11"), 1),
    (changed(0, "many"), 1),
    (changed(1, "Bangs Hair Male Young"), 2),
    (changed(1, f"{HEADER} Male"), 2),
    (changed(4, "000003.jpg -1  1"), 5),
    (changed(4, "000003.jpg -1  0  1  1"), 5),
    (changed(4, "000002.jpg -1  1  1  1"), 5),
    (changed(4, "../000003.jpg -1 1 1 1"), 5),
    (changed(4, "/etc/a.jpg -1 1 1 1"), 5),
    (changed(4, "..\\a.jpg -1 1 1 1"), 5),
    (changed(4, ".hidden.jpg -1 1 1 1"), 5),
    (changed(4, "000003.txt -1 1 1 1"), 5),
    (changed(4, "000099.jpg -1 1 1 1"), 0),  # only in this list
]
PARTS: list[tuple[Callable[[list[str]], list[str]], int]] = [
    (changed(2, "000003.jpg"), 3),
    (changed(2, "000003.jpg two"), 3),
    (changed(2, "000003.jpg 2 2"), 3),
    (changed(2, "000002.jpg 2"), 3),
    (changed(2, "a/000003.jpg 2"), 3),
    (lambda lines: lines[:-1], 0),
    (lambda lines: [line.replace(" 0", " 1") for line in lines], 0),  # no image of a class
]


@pytest.mark.parametrize(
    ("name", "change", "number"),
    [
        *((CELEBA.attribute_list, change, number) for change, number in ATTRIBUTES),
        *((CELEBA.part_list, change, number) for change, number in PARTS),
    ],
)
def test_a_list_of_another_form_is_refused_by_line_and_without_its_images_in_public(
    folder: Path, name: str, change: Callable[[list[str]], list[str]], number: int
) -> None:
    lines = attribute_lines() if name == CELEBA.attribute_list else part_lines()
    write_lines(folder / name, change(lines))
    with pytest.raises(DataError, match=f"line {number}:" if number else "") as refused:
        opened(folder)
    assert str(folder) not in str(refused.value.public)
    assert ".jpg" not in str(refused.value.public)


def test_a_listed_image_that_is_missing_is_refused_only_where_it_is_needed(folder: Path) -> None:
    (folder / IMAGES / "000003.jpg").unlink()
    assert len(opened(folder, "train").test) == 5
    with pytest.raises(DataError, match=r"000003\.jpg") as refused:
        opened(folder, "test")
    assert refused.value.public == "of the 4 images listed for a part of CelebA, 1 are missing."
    for file in (folder / IMAGES).iterdir():
        file.unlink()
    (folder / IMAGES).rmdir()
    with pytest.raises(DataError, match="is missing"):
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
