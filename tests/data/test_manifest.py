# SPDX-License-Identifier: Apache-2.0
"""Manifests: what they cover, that every change is seen, and damaged ones refused."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data import PACS, dataset_spec
from fdg_plugins.data.folders import MANIFEST
from fdg_plugins.data.own_folder import own_data
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


def test_missing_extra_and_changed_files_are_told_apart(root: Path) -> None:
    (root / "pacs" / "photo" / "dog" / "1.jpg").unlink()
    write_files(root / "pacs", {"photo/dog/3.jpg": b"", "sketch/person/1.png": image(4), "cartoon/dog/1.jpg": b""})
    found = changes(root)
    assert found == Changes(
        missing=("photo/dog/1.jpg",), extra=("cartoon/dog/1.jpg", "photo/dog/3.jpg"), changed=("sketch/person/1.png",)
    )
    assert found


def test_a_file_that_became_a_link_out_of_the_root_is_refused(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = root / "pacs" / "photo" / "dog" / "2.jpg"
    file.rename(tmp_path_factory.mktemp("outside") / "2.jpg")
    file.symlink_to(next(iter(tmp_path_factory.getbasetemp().glob("outside*/2.jpg"))))
    with pytest.raises(DataError, match=r"2\.jpg is a link out of the data root"):
        changes(root)


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


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"folder": "vlcs"},
        {"sha256": "0" * 64},
        {"files": {}},
        {"files": {"photo/dog/1.jpg": {"bytes": "1", "sha256": ""}}},
        {"more": 1},
        {"files": 1},
    ],
)
def test_a_damaged_manifest_is_refused_by_name(change: dict[str, Any], root: Path) -> None:
    path = root / "pacs" / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=rf"manifest .*{MANIFEST}"):
        read_manifest(root, PACS)
