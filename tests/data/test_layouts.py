# SPDX-License-Identifier: Apache-2.0
"""Published layouts mapped to this package's: which file becomes which, what is left out, and what is refused."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation import Plan, make_plan, open_source
from tests.data.published import FOLDERS, published, write_files


def plan(dataset: str, folder: Path, files: Mapping[str, bytes], target: Path | None = None) -> Plan:
    source = open_source(write_files(folder / "source", files))
    return make_plan(dataset_spec(dataset), source, target or folder / "target")


def targets(made: Plan) -> dict[str, str]:
    return {item.target: item.source for item in made.items}


@pytest.mark.parametrize("dataset", FOLDERS)
def test_every_published_image_goes_into_the_folder_of_its_domain_and_class(dataset: str, tmp_path: Path) -> None:
    spec, (top, domains) = dataset_spec(dataset), FOLDERS[dataset]
    made = plan(dataset, tmp_path, published(dataset, per_class=1) | {"README.txt": b"", f"{top}/info.csv": b""})
    assert targets(made) == {
        f"{domain}/{name}/00000.jpg": f"{top}/{folder}/{name}/00000.jpg"
        for domain, folder in domains.items()
        for name in spec.classes
    }
    left_out = {"README.txt", f"{top}/info.csv"}
    if dataset == "domainnet10":
        assert left_out < set(made.left_out)
        assert len(made.left_out) == 2 + 2 * 335
    else:
        assert set(made.left_out) == left_out


@pytest.mark.parametrize(
    ("dataset", "path", "target"),
    [
        ("officehome", "office_home/Real_World/TV/1.jpg", "real_world/TV/1.jpg"),
        ("officehome", "RealWorld/alarm clock/1.JPG", "real_world/Alarm_Clock/1.JPG"),
        ("officehome", "real_world/ToothBrush/1.png", "real_world/ToothBrush/1.png"),
        ("vlcs", "VLCS/SUN/train/0/imgs_1.jpg", "sun09/bird/train_imgs_1.jpg"),
        ("vlcs", "VLCS/PASCAL/test/4/test_imgs_1.jpg", "voc2007/person/test_imgs_1.jpg"),
        ("vlcs", "VLCS/CALTECH/full/2/crossval_imgs_1.jpg", "caltech101/chair/crossval_imgs_1.jpg"),
        ("domainnet", "clipart/train/clipart_303_000001.jpg", "clipart/train/clipart_303_000001.jpg"),
        ("domainnet", "real/t-shirt/1.jpg", "real/t-shirt/1.jpg"),
        ("pacs", "a/b/c/art_painting/dog/pic_001.jpg", "art_painting/dog/pic_001.jpg"),
    ],
)
def test_names_of_domains_and_classes_are_compared_without_case_and_punctuation(
    dataset: str, path: str, target: str, tmp_path: Path
) -> None:
    assert targets(plan(dataset, tmp_path, {path: b""})) == {target: path}


@pytest.mark.parametrize(
    "path",
    [
        "photo/dog.jpg",  # no folder of a class
        "photo/cat/1.jpg",  # no class of PACS
        "painting/dog/1.jpg",  # no domain of PACS
        "photo/dog/more/1.jpg",  # too deep
        "photo/dog/1.gif",  # not read by the loader
        "photo/0/1.jpg",  # only VLCS is published with numbers
    ],
)
def test_what_is_no_image_of_a_domain_and_class_is_left_out(path: str, tmp_path: Path) -> None:
    made = plan("pacs", tmp_path, {"photo/dog/1.jpg": b"", path: b""})
    assert (list(targets(made)), made.left_out) == (["photo/dog/1.jpg"], (path,))


def test_a_source_without_images_of_the_data_set_is_refused_with_what_is_expected(tmp_path: Path) -> None:
    expected = (
        "expected <domain>/<class>/<image> with the domains Art, Clipart, Product, Real World and classes such as"
    )
    with pytest.raises(DataError, match=f"source .*source holds nothing of Office-Home; {expected} Alarm_Clock"):
        plan("officehome", tmp_path, {"photo/dog/1.jpg": b""})
    with pytest.raises(DataError, match=r"holds nothing of TerraIncognita; .* the annotations of the camera traps"):
        plan("terraincognita", tmp_path, {"photo/dog/1.jpg": b""})
    with pytest.raises(DataError, match=r"holds nothing of RotatedMNIST; expected the files train-images-idx3-ubyte, "):
        plan("rotatedmnist", tmp_path, {"photo/dog/1.jpg": b""})


def test_two_files_for_the_same_image_are_refused_by_name(tmp_path: Path) -> None:
    files = {"old/photo/dog/1.jpg": b"", "new/photo/dog/1.jpg": b""}
    with pytest.raises(
        DataError,
        match=r"two files for photo/dog/1\.jpg: new/photo/dog/1\.jpg and old/photo/dog/1\.jpg; expected one",
    ):
        plan("pacs", tmp_path, files)


def test_the_second_copy_that_vlcs_has_in_full_is_not_taken_twice(tmp_path: Path) -> None:
    parts = {f"VLCS/SUN/{part}/0/imgs_1.jpg": b"" for part in ("train", "crossval", "test")}
    union = {f"VLCS/SUN/full/0/{part}_imgs_1.jpg": b"" for part in ("train", "crossval")}
    made = plan("vlcs", tmp_path, parts | union)
    assert targets(made) == {
        f"sun09/bird/{part}_imgs_1.jpg": f"VLCS/SUN/{part}/0/imgs_1.jpg" for part in ("train", "crossval", "test")
    }
    assert made.left_out == ()


def test_a_file_that_is_in_its_place_already_goes_before_another(tmp_path: Path) -> None:
    files = {"pacs/photo/dog/1.jpg": b"", "elsewhere/photo/dog/1.jpg": b"", "elsewhere/photo/dog/2.jpg": b""}
    made = plan("pacs", tmp_path, files, target=tmp_path / "source" / "pacs")
    assert targets(made) == {
        "photo/dog/1.jpg": "pacs/photo/dog/1.jpg",
        "photo/dog/2.jpg": "elsewhere/photo/dog/2.jpg",
    }


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


def test_images_that_lists_name_and_the_source_lacks_are_counted(tmp_path: Path) -> None:
    lists = {
        "clipart_train.txt": b"\xef\xbb\xbfclipart/bird/clipart_027_000001.jpg 31\nclipart/bird/lost.jpg 31\n",
        "clipart_test.txt": b"clipart/zigzag/1.jpg 344\n",
    }
    ten = plan("domainnet10", tmp_path / "ten", LISTED | lists)
    assert targets(ten).keys() == {"clipart/bird/clipart_027_000001.jpg", "real/bird/1.jpg"}
    assert ten.remarks == ("clipart: the images that its two lists name (2), of which 1 are not in the source",)
    (told,) = plan("domainnet", tmp_path / "all", LISTED | lists).remarks
    assert told.endswith("(3), of which 2 are not in the source")


def test_one_list_without_the_other_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds 0 lists clipart_test\.txt; expected clipart_train\.txt and clipart_te"):
        plan("domainnet", tmp_path, LISTED | {"clipart_train.txt": b"clipart/bird/clipart_027_000001.jpg 31\n"})


@pytest.mark.parametrize("line", ["clipart/bird/1.jpg", "bird/1.jpg 31", "clipart/bird/1.jpg x", "31"])
def test_a_line_of_a_list_that_names_no_image_is_refused_by_number(line: str, tmp_path: Path) -> None:
    lists = {"clipart_train.txt": f"clipart/bird/1.jpg 31\n{line}\n".encode(), "clipart_test.txt": b""}
    with pytest.raises(DataError, match=r"list clipart_train\.txt in .*, line 2: got .*; expected '<domain>/<class>/"):
        plan("domainnet", tmp_path, LISTED | lists)


def test_a_list_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"list clipart_train\.txt in .* is not text"):
        plan("domainnet", tmp_path, LISTED | {"clipart_train.txt": b"\xff\xfe\xff", "clipart_test.txt": b""})


# --- MNIST ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["rotatedmnist", "rotatedmnist_7k"])
@pytest.mark.parametrize(
    ("path", "target", "packed"),
    [
        ("t10k-labels-idx1-ubyte", "MNIST/raw/t10k-labels-idx1-ubyte", False),
        ("MNIST/raw/train-images-idx3-ubyte.gz", "MNIST/raw/train-images-idx3-ubyte", True),
        ("archive/train-images.idx3-ubyte", "MNIST/raw/train-images-idx3-ubyte", False),
    ],
)
def test_the_files_of_mnist_are_found_wherever_they_lie(
    dataset: str, path: str, target: str, packed: bool, tmp_path: Path
) -> None:
    made = plan(dataset, tmp_path, {path: b"", "other.gz": b""})
    assert [(item.source, item.target, item.packed) for item in made.items] == [(path, target, packed)]


def test_of_a_file_of_mnist_the_unpacked_one_is_taken(tmp_path: Path) -> None:
    name = "train-labels-idx1-ubyte"
    made = plan("rotatedmnist", tmp_path, {f"raw/{name}": b"", f"raw/{name}.gz": b""})
    assert targets(made) == {f"MNIST/raw/{name}": f"raw/{name}"}


@pytest.mark.parametrize("dataset", ["mnist", "rotatedmnist"])
def test_the_files_of_mnist_may_have_either_spelling_or_both(dataset: str, tmp_path: Path) -> None:
    name, dotted = "train-labels-idx1-ubyte", "train-labels.idx1-ubyte"
    assert targets(plan(dataset, tmp_path / "one", {dotted: b""})) == {f"MNIST/raw/{name}": dotted}
    both = {dotted: b"", f"{name}/{name}": b""}
    assert targets(plan(dataset, tmp_path / "both", both)) == {f"MNIST/raw/{name}": f"{name}/{name}"}


def test_a_source_with_drawings_of_the_stand_in_is_refused(tmp_path: Path) -> None:
    files = {"si/pacs/photo/dog/000.png": b"", "si/pacs/STAND-IN.json": b"{}"}
    with pytest.raises(DataError, match=r"holds si/pacs/STAND-IN\.json: it is the STAND-IN; expected images of PACS"):
        plan("pacs", tmp_path, files)
