# SPDX-License-Identifier: Apache-2.0
"""CelebA's lists and images: what is read of files made by hand, what is refused, and who is told the attribute."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from fdg_plugins.data import DomainData, open_domain
from fdg_plugins.data.catalogue import CELEBA
from fdg_plugins.data.images import evaluation_batches, reported_batches, training_epochs
from fdg_plugins.data.listing import list_domain
from fdg_plugins.data.specs import Sample
from fdg_plugins.lab.preparation.prepare import prepare
from tests.data.conftest import move_out, refused

IMAGES = CELEBA.image_folder
ATTRIBUTES, PARTS = CELEBA.attribute_list, CELEBA.part_list
# Name, part, and whether the image shows somebody blond, a man.
FACES = tuple(
    (f"{number:06d}.jpg", part, blond, male)
    for number, (part, blond, male) in enumerate(
        [(0, 0, 0), (0, 1, 0), (2, 1, 1), (0, 0, 1), (1, 1, 0), (2, 0, 1), (0, 1, 1), (2, 1, 0), (0, 0, 0), (2, 0, 0)],
        1,
    )
)
HEAD = [f"{len(FACES)}", "Bangs Blond_Hair Male Young "]
ROWS = [f"{name} -1 {2 * blond - 1:>2} {2 * male - 1:>2}  1" for name, _, blond, male in FACES]
LISTED = [f"{name} {part}" for name, part, _, _ in FACES]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data set's folder, with images of plain colours, which the test may damage; its parent is the data root."""
    folder = tmp_path / "root" / CELEBA.folder
    (folder / IMAGES).mkdir(parents=True)
    write(folder / ATTRIBUTES, [*HEAD, *ROWS])
    write(folder / PARTS, LISTED)
    for number, (name, *_) in enumerate(FACES, 1):
        Image.new("RGB", (18, 22), (20 * number, 90, 60)).save(folder / IMAGES / name)
    return folder


def write(file: Path, lines: Sequence[str]) -> None:
    file.write_text("\r\n".join(lines) + "\n", encoding="utf-8")


def opened(folder: Path, domain: str = "train") -> DomainData:
    return open_domain(folder.parent, "celeba", domain, seed=0)


@pytest.mark.parametrize(("domain", "number"), [("train", 0), ("test", 2)])
def test_the_images_of_a_part_have_the_class_and_the_attribute_of_their_line(
    folder: Path, domain: str, number: int
) -> None:
    assert CELEBA.classes == ("blond", "not_blond")
    assert list_domain(folder.parent, CELEBA, domain).images == tuple(
        Sample(f"{IMAGES}/{name}", 1 - blond, attribute=male) for name, part, blond, male in FACES if part == number
    )


def test_an_evaluation_is_told_the_attribute_and_neither_training_nor_a_report_is(folder: Path) -> None:
    data = opened(folder)
    common: dict[str, Any] = {"image_size": 8, "batch_size": 2, "seed": 0, "scope": ("site",)}
    (images, targets), *_ = evaluation_batches(data, data.test, image_size=8, batch_size=5)
    assert targets.tolist() == [[sample.label, sample.attribute] for sample in data.test]
    assert images.shape == (5, 3, 8, 8)
    trained = [batch for epoch in training_epochs(data, **common, epochs=2) for batch in epoch]
    reported = list(reported_batches(data, **common))
    assert all(labels.dim() == 1 for _, labels in (*trained, *reported))
    assert sum(len(labels) for _, labels in trained) == 2 * len(data.train)
    assert torch.cat([labels for _, labels in reported]).tolist() == [sample.label for sample in data.train]


@pytest.mark.parametrize(
    ("name", "number", "line"),
    [
        (ATTRIBUTES, 2, "Bangs Hair Male Young"),
        *((ATTRIBUTES, 5, f"000003.jpg {values}") for values in ("-1  1", "-1  x  1  1")),
        *((PARTS, 3, line) for line in ("000003.jpg", "000003.jpg 2 2", "000002.jpg 2")),
    ],
)
def test_a_line_of_another_form_is_refused_by_its_number(folder: Path, name: str, number: int, line: str) -> None:
    lines = [*HEAD, *ROWS] if name == ATTRIBUTES else LISTED
    write(folder / name, [*lines[: number - 1], line, *lines[number:]])
    with refused(f"line {number}"):
        opened(folder)


def test_a_list_names_no_file_elsewhere(folder: Path) -> None:
    for name, lines in ((ATTRIBUTES, [*HEAD, *ROWS]), (PARTS, LISTED)):
        write(folder / name, [line.replace("000001.jpg", "../000001.jpg") for line in lines])
    (folder / "000001.jpg").touch()
    with refused("images", "'../000001.jpg'"):
        opened(folder)


def test_lists_that_do_not_fit_each_other_or_the_images_are_refused(folder: Path) -> None:
    (folder / IMAGES / "000003.jpg").unlink()
    assert len(opened(folder, "train").test) == 5
    with refused("images", "000003.jpg"):
        opened(folder, "test")
    write(folder / PARTS, LISTED[:-1])
    with refused("images", "000010.jpg"):
        opened(folder)


@pytest.mark.parametrize("name", [ATTRIBUTES, IMAGES, f"{IMAGES}/000001.jpg"])
def test_a_link_out_of_the_data_root_is_refused(folder: Path, name: str) -> None:
    move_out(folder / name, folder.parent)
    with refused("link", name):
        opened(folder)


def test_the_published_files_are_prepared_and_counted(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "download"
    (source / "Anno").mkdir(parents=True)
    (folder / IMAGES).rename(source / IMAGES)
    for name in (ATTRIBUTES, PARTS):
        (folder / name).rename(source / "Anno" / name)
    (source / "Anno" / "identity_CelebA.txt").write_text("000001.jpg 2880\n")
    root = tmp_path / "prepared"
    done = prepare(CELEBA, source, root)
    assert done.counts == {"test": {"blond": 2, "not_blond": 2}, "train": {"blond": 2, "not_blond": 3}}
    assert not done.verdict.is_wrong, "numbers of which nobody is certain"
    assert done.plan.left_out == ("Anno/identity_CelebA.txt",)
    assert done.manifest is not None
    assert (len(done.manifest.files), done.manifest.release) == (12, None)
