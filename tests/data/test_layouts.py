# SPDX-License-Identifier: Apache-2.0
"""Published layouts mapped to this package's: which file becomes which, what is left out, and what is refused."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.layouts import Plan, make_plan
from fdg_plugins.lab.preparation.sources import open_source
from tests.data.published import write_files


def plan(dataset: str, folder: Path, files: Mapping[str, bytes], target: Path | None = None) -> Plan:
    source = open_source(write_files(folder / "source", files))
    return make_plan(dataset_spec(dataset), source, target or folder / "target")


def targets(made: Plan) -> dict[str, str]:
    return {item.target: item.source for item in made.items}


@pytest.mark.parametrize("dataset", ["officehome", "terraincognita", "rotatedmnist", "celeba", "vessels"])
def test_a_source_without_images_of_the_data_set_is_refused(dataset: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds nothing of .*; expected"):
        plan(dataset, tmp_path, {"photo/dog/1.jpg": b""})


def test_two_files_for_the_same_image_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"two files for photo/dog/1\.jpg"):
        plan("pacs", tmp_path, {"old/photo/dog/1.jpg": b"", "new/photo/dog/1.jpg": b""})


def test_the_second_copy_that_vlcs_has_in_full_is_not_taken_twice(tmp_path: Path) -> None:
    parts = {f"VLCS/SUN/{part}/0/imgs_1.jpg": b"" for part in ("train", "crossval", "test")}
    union = {f"VLCS/SUN/full/0/{part}_imgs_1.jpg": b"" for part in ("train", "crossval")}
    made = plan("vlcs", tmp_path, parts | union)
    assert targets(made) == {
        f"sun09/bird/{part}_imgs_1.jpg": f"VLCS/SUN/{part}/0/imgs_1.jpg" for part in ("train", "crossval", "test")
    }
    assert made.left_out == ()


def test_the_official_lists_of_pacs_come_along_unless_they_are_there(tmp_path: Path) -> None:
    files = {
        "kfold/photo/dog/1.jpg": b"",
        "Train val splits and h5py files pre-read/photo_train_kfold.txt": b"",
        "Train val splits and h5py files pre-read/photo_train.hdf5": b"",
    }
    made = plan("pacs", tmp_path, files)
    assert targets(made)["splits/photo_train_kfold.txt"].endswith("/photo_train_kfold.txt")
    assert made.left_out == ("Train val splits and h5py files pre-read/photo_train.hdf5",)
    in_place = plan("pacs", tmp_path, files, target=tmp_path / "source")
    assert [target for target in targets(in_place) if target.endswith(".txt")] == []


# --- DomainNet's lists ------------------------------------------------------------------------------------


LISTED = {f"clipart/bird/clipart_027_{number:06d}.jpg": b"" for number in (1, 2, 3)} | {"real/bird/1.jpg": b""}


@pytest.mark.parametrize("dataset", ["domainnet", "domainnet10"])
def test_of_a_domain_with_lists_only_the_images_that_they_name_are_taken(dataset: str, tmp_path: Path) -> None:
    lists = {
        "clipart_train.txt": b"clipart/bird/clipart_027_000001.jpg 31\n\n",
        "clipart_test.txt": b"clipart/bird/clipart_027_000003.jpg 31\r\n",
    }
    made = plan(dataset, tmp_path, LISTED | lists)
    assert set(targets(made)) == LISTED.keys() - {"clipart/bird/clipart_027_000002.jpg"}
    assert "clipart/bird/clipart_027_000002.jpg" in made.left_out
    assert made.remarks == ("clipart: the images that its two lists name (2)",)


def test_one_list_without_the_other_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"clipart_test\.txt"):
        plan("domainnet", tmp_path, LISTED | {"clipart_train.txt": b"clipart/bird/clipart_027_000001.jpg 31\n"})


@pytest.mark.parametrize("line", ["clipart/bird/1.jpg", "bird/1.jpg 31", "clipart/bird/1.jpg x", "31", "\xff"])
def test_a_line_of_a_list_that_names_no_image_is_refused_by_number(line: str, tmp_path: Path) -> None:
    lists = {"clipart_train.txt": f"clipart/bird/1.jpg 31\n{line}\n".encode(), "clipart_test.txt": b""}
    with pytest.raises(DataError, match=r"list clipart_train\.txt in .*, line 2"):
        plan("domainnet", tmp_path, LISTED | lists)


# --- MNIST ------------------------------------------------------------------------------------------------
