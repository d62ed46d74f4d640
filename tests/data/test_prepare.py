# SPDX-License-Identifier: Apache-2.0
"""Preparing data sets: from every published layout to a domain that opens; interruptions; counts and manifests."""

import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data import PACS, dataset_spec, find_data_root, open_domain
from fdg_plugins.data.domains import DataRoot, check_images
from fdg_plugins.data.folders import MANIFEST
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.checks import find_changes, read_manifest, write_manifest
from fdg_plugins.lab.preparation.prepare import Prepared, prepare
from tests.data.conftest import refused
from tests.data.published import FOLDERS, content_below, image, published, write_arrays, write_files

PHOTOS = {f"photo/{name}/{n}.jpg": image(10 * label + n) for label, name in enumerate(PACS.classes) for n in range(2)}


def prepared(dataset: str, source: Path, root: Path) -> Prepared:
    return prepare(dataset_spec(dataset), source, root, any_counts=True)


def planned(dataset: str, folder: Path, files: Mapping[str, bytes]) -> tuple[dict[str, str], Prepared]:
    """Return which source each target has, and what came of preparing it."""
    done = prepared(dataset, write_files(folder / "source", files), folder / "root")
    return {item.target: item.source for item in done.plan.items}, done


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_files(tmp_path / "photos", PHOTOS)


@pytest.mark.parametrize("dataset", FOLDERS)
def test_every_published_layout_becomes_domains_that_open_under_the_right_labels(dataset: str, tmp_path: Path) -> None:
    files, spec, (top, domains) = published(dataset), dataset_spec(dataset), FOLDERS[dataset]
    done = prepared(dataset, write_files(tmp_path / "source", files), tmp_path / "root")
    assert done.manifest is not None
    for domain, folder in domains.items():
        data = open_domain(tmp_path / "root", dataset, domain, seed=0)
        check_images(data)
        assert [sample.file for sample in data.test] == sorted(
            f"{domain}/{name}/{number:05d}.jpg" for name in spec.classes for number in range(2)
        )
        for sample in data.test:
            _, name, file = sample.file.split("/")
            assert spec.classes[sample.label] == name
            content = (tmp_path / "root" / dataset / sample.file).read_bytes()
            assert content == files[f"{top}/{folder}/{name}/{file}"]
        assert done.counts[domain] == dict.fromkeys(spec.classes, 2)


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_is_unpacked_to_where_it_is_read(packed: bool, tmp_path: Path) -> None:
    write_arrays(tmp_path, "mnist")
    raw = tmp_path / "mnist" / "MNIST" / "raw"
    for file in sorted(raw.iterdir()) if packed else ():
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    done = prepared("rotatedmnist_7k", raw, tmp_path / "new")
    assert [(part, sum(numbers.values())) for part, numbers in done.counts.items()] == [("train", 30), ("test", 30)]
    assert len(open_domain(tmp_path / "new", "rotatedmnist", "angle_15", seed=0).test) == 10, "a sixth of both"
    assert prepared("rotatedmnist", raw, tmp_path / "new").kept == 4


def test_the_second_copy_that_vlcs_has_in_full_is_not_taken_twice(tmp_path: Path) -> None:
    parts = {f"VLCS/SUN/{part}/0/imgs_1.jpg": image(1) for part in ("train", "crossval", "test")}
    union = {f"VLCS/SUN/full/0/{part}_imgs_1.jpg": image(1) for part in ("train", "crossval")}
    targets, done = planned("vlcs", tmp_path, parts | union)
    assert targets == {f"sun09/bird/{file.split('/')[2]}_imgs_1.jpg": file for file in parts}
    assert done.plan.left_out == ()


def test_the_official_lists_of_pacs_come_along_unless_they_are_there(tmp_path: Path, photos: Path) -> None:
    folder = "Train val splits and h5py files pre-read"
    names = ("photo_train_kfold.txt", "photo_crossval_kfold.txt", "photo_train.hdf5")
    write_files(photos / folder, dict.fromkeys(names, b""))
    done = prepared("pacs", photos, tmp_path)
    assert done.plan.left_out == (f"{folder}/photo_train.hdf5",)
    assert (tmp_path / "pacs" / "splits" / "photo_train_kfold.txt").is_file()
    again = prepared("pacs", tmp_path / "pacs", tmp_path)
    assert (again.written, again.kept) == (0, len(PHOTOS))


LISTED = {f"clipart/bird/clipart_027_{number:06d}.jpg": image(number) for number in (1, 2, 3)}


@pytest.mark.parametrize("dataset", ["domainnet", "domainnet10"])
def test_of_a_domain_with_lists_only_the_images_that_they_name_are_taken(dataset: str, tmp_path: Path) -> None:
    first, second, third = LISTED
    lists = {"clipart_train.txt": f"{first} 31\n\n".encode(), "clipart_test.txt": f"{third} 31\r\n".encode()}
    targets, done = planned(dataset, tmp_path, {**LISTED, "real/bird/1.jpg": image(4), **lists})
    assert set(targets) == {first, third, "real/bird/1.jpg"}
    assert second in done.plan.left_out
    assert done.plan.remarks == ("clipart: the images that its lists name (2)",)


def test_an_image_of_the_camera_traps_goes_to_its_place_and_to_each_of_its_chosen_species(tmp_path: Path) -> None:
    traps = [("a", "a.jpg", "38"), ("b", "folder/b.jpg", 100), ("c", "c.jpg", "33"), ("d", "d.jpg", "43")]
    traps.append(("e", "e", "38"))  # whose image is not there
    seen = [("a", 1), ("a", 1), ("a", 3), ("b", 3), ("c", 1), ("d", 33), ("e", 1), ("none", 1)]
    annotated = {
        "images": [{"id": id_, "file_name": name, "location": place} for id_, name, place in traps],
        "annotations": [{"image_id": id_, "category_id": species} for id_, species in seen],
        "categories": [{"id": id_, "name": name} for id_, name in ((1, "opossum"), (3, "raccoon"), (33, "car"))],
    }
    files = {f"small/{name}.jpg": image(number) for number, name in enumerate("abcd")}
    targets, done = planned("terraincognita", tmp_path, {**files, "cct.json": json.dumps(annotated).encode()})
    assert targets == {
        "location_38/opossum/a.jpg": "small/a.jpg",
        "location_38/raccoon/a.jpg": "small/a.jpg",
        "location_100/raccoon/b.jpg": "small/b.jpg",
    }
    assert done.plan.remarks == ("1 annotated images are not in the source",)


@pytest.mark.parametrize(
    ("dataset", "files", "named"),
    [
        *((name, PHOTOS, "holds nothing of") for name in ("officehome", "rotatedmnist", "celeba", "vessels")),
        ("pacs", {f"{place}/photo/dog/1.jpg": b"" for place in ("old", "new")}, "two files for photo/dog/1.jpg"),
        ("pacs", {**PHOTOS, "STAND-IN.json": b"{}"}, "STAND-IN"),
    ],
)
def test_what_is_not_the_data_set_is_refused_by_name(
    dataset: str, files: Mapping[str, bytes], named: str, tmp_path: Path
) -> None:
    with refused("", named):
        planned(dataset, tmp_path, files)
    assert not (tmp_path / "root" / dataset / MANIFEST).exists()


def test_after_an_interruption_runs_are_refused_and_a_second_call_goes_on(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"

    def interrupted(items: Iterable[Any], what: str) -> Iterable[Any]:
        yield from islice(items, 5)
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr("fdg_plugins.lab.preparation.prepare.track", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepared("pacs", photos, root)
    assert len(dict(content_below(root / "pacs"))) == 5
    with refused("folder", root):
        find_data_root("pacs", root, None)
    done = prepared("pacs", photos, root)
    assert (done.written, done.kept) == (len(PHOTOS) - 5, 5)
    assert {path: content for path, content in content_below(root / "pacs") if path != MANIFEST} == PHOTOS
    assert find_data_root("pacs", root, None) == DataRoot(root, stand_in=False)


def test_a_link_in_the_way_of_a_file_is_replaced_and_not_followed(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.jpg").write_bytes(b"mine")
    folder = tmp_path / "root" / "pacs" / "photo" / "dog"
    folder.mkdir(parents=True)
    (folder / "0.jpg").symlink_to(tmp_path / "outside.jpg")
    prepared("pacs", photos, tmp_path / "root")
    assert not (folder / "0.jpg").is_symlink()
    assert (tmp_path / "outside.jpg").read_bytes() == b"mine"


@pytest.mark.parametrize("place", ["pacs", "pacs/photo/dog"])
def test_a_folder_that_leads_out_of_the_data_root_is_not_written_to(place: str, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    link = tmp_path / "root" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "outside")
    with pytest.raises(DataError):
        prepared("pacs", photos, tmp_path / "root")
    assert list((tmp_path / "outside").iterdir()) == []


FILES = {
    **{"photo/dog/1.jpg": image(1), "photo/dog/2.jpg": image(2), "sketch/person/1.png": image(3)},
    "splits/photo_train_kfold.txt": b"photo/dog/1.jpg 1\n",
}
BESIDE = {".lock": b"", "photo/dog/.hidden.jpg": b"", "photo/.hidden/1.jpg": b"", "photo/Thumbs.db": b""}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A resolved data root with some files of PACS, some others beside them, and the manifest."""
    write_files(tmp_path / "pacs", FILES | BESIDE)
    write_manifest(tmp_path.resolve(), PACS, "a release")
    return tmp_path.resolve()


def test_a_manifest_has_size_and_digest_of_images_and_lists_and_shows_every_change(root: Path) -> None:
    manifest = read_manifest(root, PACS)
    assert manifest is not None
    assert {path: (record.bytes, record.sha256) for path, record in manifest.files.items()} == {
        path: (len(content), hashlib.sha256(content).hexdigest()) for path, content in FILES.items()
    }
    assert (manifest.folder, manifest.release) == ("pacs", "a release")
    assert not any(find_changes(root, PACS, manifest).values())
    (root / "pacs" / "photo" / "dog" / "1.jpg").unlink()
    write_files(root / "pacs", {"photo/dog/3.jpg": b"", "sketch/person/1.png": image(4), "cartoon/dog/1.jpg": b""})
    extra = ["cartoon/dog/1.jpg", "photo/dog/3.jpg"]
    changes = {"missing": ["photo/dog/1.jpg"], "extra": extra, "changed": ["sketch/person/1.png"]}
    assert find_changes(root, PACS, manifest) == changes
    file = root / "pacs" / "photo" / "dog" / "2.jpg"
    file.symlink_to(file.rename(root.parent / "outside.jpg"))
    with pytest.raises(DataError):
        find_changes(root, PACS, manifest)


@pytest.mark.parametrize("change", [{"folder": "vlcs"}, {"files": {}}, {"files": 1}])
def test_a_damaged_manifest_is_refused_by_name(change: dict[str, Any], root: Path) -> None:
    path = root / "pacs" / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with refused("", str(path)):
        read_manifest(root, PACS)
