# SPDX-License-Identifier: Apache-2.0
"""Manifests: what they cover, that every change is seen, and damaged ones refused."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data import PACS, ROTATED_MNIST, VLCS, dataset_spec
from fdg_plugins.data.own_folder import own_data
from fdg_plugins.data.unfinished import MANIFEST
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation import Changes, find_changes, read_manifest, write_manifest
from tests.data.published import image, write_files

FILES = {
    "photo/dog/1.jpg": image(1),
    "photo/dog/2.jpg": image(2),
    "sketch/person/1.png": image(3),
    "splits/photo_train_kfold.txt": b"photo/dog/1.jpg 1\n",
}
BESIDE = {".lock": b"", "photo/dog/.hidden.jpg": b"", "photo/.hidden/1.jpg": b"", "readme.txt": b"", "photo/x.jpg": b""}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A resolved data root with some files of PACS, some others beside them, and the manifest."""
    write_files(tmp_path / "pacs", FILES | BESIDE)
    write_manifest(tmp_path.resolve(), PACS, "a release")
    return tmp_path.resolve()


def changes(root: Path) -> Changes:
    manifest = read_manifest(root, PACS)
    assert manifest is not None
    return find_changes(root, PACS, manifest)


def test_a_manifest_covers_images_and_lists_with_size_and_digest(root: Path) -> None:
    manifest = read_manifest(root, PACS)
    assert manifest is not None
    assert {path: (record.bytes, record.sha256) for path, record in manifest.files.items()} == {
        path: (len(content), hashlib.sha256(content).hexdigest()) for path, content in FILES.items()
    }
    assert (manifest.folder, manifest.release, manifest.format) == ("pacs", "a release", 1)


def test_its_digest_is_that_of_the_lines_of_sha256sum(root: Path) -> None:
    content = json.loads((root / "pacs" / MANIFEST).read_text())
    lines = "".join(f"{hashlib.sha256(FILES[path]).hexdigest()}  {path}\n" for path in sorted(FILES))
    assert content["sha256"] == hashlib.sha256(lines.encode()).hexdigest()


def test_what_was_not_touched_has_no_changes(root: Path) -> None:
    write_files(root / "pacs", {"readme.txt": b"changed", "photo/dog/.later": b""})
    assert not changes(root)


def test_what_windows_leaves_in_a_folder_is_no_change_also_of_an_older_manifest(root: Path) -> None:
    write_files(root / "pacs", {"photo/dog/Thumbs.db": b"1", "sketch/person/desktop.ini": b"2"})
    assert not changes(root)
    manifest = read_manifest(root, PACS)
    assert manifest is not None
    record = manifest.files["photo/dog/1.jpg"]
    older = manifest.model_copy(update={"files": {**manifest.files, "photo/dog/Thumbs.db": record}})
    assert not find_changes(root, PACS, older)


def test_missing_extra_and_changed_files_are_told_apart(root: Path) -> None:
    (root / "pacs" / "photo" / "dog" / "1.jpg").unlink()
    write_files(root / "pacs", {"photo/dog/3.jpg": b"", "sketch/person/1.png": image(4), "cartoon/dog/1.jpg": b""})
    found = changes(root)
    assert found == Changes(
        missing=("photo/dog/1.jpg",), extra=("cartoon/dog/1.jpg", "photo/dog/3.jpg"), changed=("sketch/person/1.png",)
    )
    assert found


def test_a_change_of_one_bit_is_seen(root: Path) -> None:
    file = root / "pacs" / "photo" / "dog" / "2.jpg"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert changes(root).changed == ("photo/dog/2.jpg",)


def test_a_file_that_became_a_link_out_of_the_root_is_refused(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = root / "pacs" / "photo" / "dog" / "2.jpg"
    file.rename(tmp_path_factory.mktemp("outside") / "2.jpg")
    file.symlink_to(next(iter(tmp_path_factory.getbasetemp().glob("outside*/2.jpg"))))
    with pytest.raises(DataError, match=r"2\.jpg is a link out of the data root"):
        changes(root)


def test_of_mnist_it_covers_the_four_files(mnist_root: Path) -> None:
    root = mnist_root.resolve()
    write_files(root / "mnist" / "MNIST" / "raw", {"train-images-idx3-ubyte.gz": b""})
    manifest = write_manifest(root, ROTATED_MNIST, None)
    assert len(manifest.files) == 4
    assert all(path.startswith("MNIST/raw/") for path in manifest.files)
    assert not find_changes(root, ROTATED_MNIST, manifest)


def test_of_data_of_one_s_own_it_covers_what_divides_them(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    files = {f"{domain}/{name}/1.png": image(1) for domain in "abc" for name in "xy"}
    lists = {f"lists/{domain}.txt": b"x/1.png\n" for domain in "abc"}
    said = {"dataset.toml": b'name = "mine"\n[lists]\ntrain = "lists/{domain}.txt"\n', "notes.txt": b""}
    write_files(root, files | lists | said)
    spec = dataset_spec(own_data(root).dataset)
    assert write_manifest(root, spec, None).files.keys() == {*files, *lists, "dataset.toml"}
    (root / "lists" / "b.txt").write_bytes(b"y/1.png\n")
    manifest = read_manifest(root, spec)
    assert manifest is not None
    assert find_changes(root, spec, manifest) == Changes((), (), ("lists/b.txt",))


@pytest.mark.parametrize("part", ["", "train/"])
def test_of_data_of_one_s_own_it_covers_linked_folders_of_classes(part: str, tmp_path: Path) -> None:
    root = tmp_path.resolve()
    files = {f"{domain}/{part}{name}/1.png": image(1) for domain in "abc" for name in "xy"}
    said = {"dataset.toml": b'[parts]\ntrain = "train"\n'} if part else {}
    write_files(root, files | said)
    (root / "a" / part / "x").rename(root / ".pool")
    (root / "a" / part / "x").symlink_to(root / ".pool")
    spec = dataset_spec(own_data(root).dataset)
    manifest = write_manifest(root, spec, None)
    assert manifest.files.keys() == {*files, *said}
    (root / ".pool" / "1.png").write_bytes(image(2))
    assert find_changes(root, spec, manifest).changed == (f"a/{part}x/1.png",)


def test_of_masks_it_covers_the_data_list_and_all_that_it_names(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    pair = {"image": "pool/i.png", "label": "pool/m.png"}
    content = json.dumps({"training": [pair]}).encode()
    said = b'task = "segmentation"\nclasses = ["background", "vessel"]\n'
    folders = {f"{domain}/{part}/1.png": image(1) for domain in "abc" for part in ("images", "masks")}
    more = {"a.json": content, "pool/i.png": image(2), "pool/m.png": image(3), "pool/other.png": image(4)}
    write_files(root, folders | more | {"dataset.toml": b'domains = ["a", "b", "c"]\n' + said})
    spec = dataset_spec(own_data(root).dataset)
    covered = write_manifest(root, spec, None).files.keys()
    assert covered == {*folders, *more, "dataset.toml"} - {"pool/other.png"}


def test_there_may_be_none(tmp_path: Path) -> None:
    assert read_manifest(tmp_path, VLCS) is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": 2}, "has format 2; expected 1"),
        ({"folder": "vlcs"}, "is of folder vlcs/; expected pacs/"),
        ({"sha256": "0" * 64}, "does not have its own digest"),
        ({"files": {}}, "does not have its own digest"),
        ({"files": {"photo/dog/1.jpg": {"bytes": "1", "sha256": ""}}}, r"files\.photo/dog/1\.jpg\.bytes: .*integer"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
        ({"files": 1}, "files: .*expected what fdg data prepare writes"),
    ],
)
def test_a_damaged_manifest_is_refused_by_name(change: dict[str, Any], sentence: str, root: Path) -> None:
    path = root / "pacs" / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=rf"manifest .*{MANIFEST}.*{sentence}"):
        read_manifest(root, PACS)


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_manifest_that_is_no_manifest_is_refused(text: str, root: Path) -> None:
    (root / "pacs" / MANIFEST).write_text(text)
    with pytest.raises(DataError, match=MANIFEST):
        read_manifest(root, PACS)
