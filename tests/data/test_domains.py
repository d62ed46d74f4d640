# SPDX-License-Identifier: Apache-2.0
"""Opening a domain: what is listed, what is left out, what is refused, and where a site's data root is."""

import shutil
from pathlib import Path

import pytest

from fdg_plugins.data import PACS, DomainData, SharedDomains, domains, find_data_root, open_domain
from fdg_plugins.data.domains import DataRoot
from fdg_plugins.data.stand_in import MARKER
from tests.data.conftest import move_out, refused, write_pacs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root with the domains photo and sketch; the files are empty, since opening a domain reads none."""
    return write_pacs(tmp_path / "root", domains=("photo", "sketch"))


def open_photo(root: Path) -> DomainData:
    return open_domain(root, "pacs", "photo", seed=1)


def test_the_known_bad_sketch_is_skipped_and_what_else_lies_there_is_said(root: Path) -> None:
    folder = root / "pacs" / "sketch"
    for name in ("n02103406_4068-1.png", "n02103406_4068-10.png", "a.heic", "Thumbs.db", ".hidden.jpg"):
        (folder / "dog" / name).touch()
    (folder / "loose.jpg").touch()
    data = open_domain(root, "pacs", "sketch", seed=1)
    assert data.skipped == ("sketch/dog/n02103406_4068-1.png",)
    assert "sketch/dog/n02103406_4068-10.png" in {sample.file for sample in data.test}
    assert data.unused == ("2 files or folders (such as sketch/dog/a.heic)",)


@pytest.mark.parametrize("left", ["", "n02103406_4068-1.jpg", "Thumbs.db"])
def test_a_class_without_images_is_absent_and_the_labels_of_the_others_stay(root: Path, left: str) -> None:
    folder = root / "pacs" / "sketch" / "dog"
    for file in folder.iterdir():
        file.unlink()
    (folder / left).touch() if left else folder.rmdir()
    labels = {sample.label for sample in open_domain(root, "pacs", "sketch", seed=1).test}
    assert labels == {*range(1, len(PACS.classes))}


def test_a_folder_one_level_off_and_an_unexpected_class_are_refused(root: Path) -> None:
    with refused("folder", root):
        open_photo(root / "pacs")
    (root / "pacs" / "photo" / "zebra").mkdir()
    with refused("folder", "zebra"):
        open_photo(root)
    for folder in (root / "pacs" / "photo").iterdir():
        shutil.rmtree(folder)
    with refused("folder", "photo"):
        open_photo(root)


@pytest.mark.parametrize("path", ["pacs", "pacs/photo", "pacs/photo/dog", "pacs/photo/dog/056_0000.jpg"])
def test_a_link_out_of_the_data_root_is_refused_at_every_depth(root: Path, path: str) -> None:
    move_out(root / path, root)
    with refused("link", path):
        open_photo(root)


def test_a_site_with_a_part_holds_its_share_and_tests_on_the_whole_domain(root: Path) -> None:
    whole = open_photo(root)
    first, second = (open_domain(root, "pacs", "photo", seed=1, part=(number, 2)) for number in (1, 2))
    assert {*first.train, *second.train} == set(whole.train)
    assert {*first.validation, *second.validation} == set(whole.validation)
    assert first.test == second.test == whole.test
    assert second.name == f"pacs/90-10@1/equal@1-{whole.digest}/part2of2"
    # The census refuses other labels: which images are for training follows from them, so parts would overlap.
    (root / "pacs" / "photo" / "dog" / "056_0000.jpg").rename(root / "pacs" / "photo" / "horse" / "moved.jpg")
    there = open_domain(root, "pacs", "photo", seed=1, part=(2, 2))
    assert there.name.rsplit("/part", 1)[0] != second.name.rsplit("/part", 1)[0]


def test_sites_of_one_process_list_a_domain_once_and_have_what_they_have_apart(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedDomains()
    first = open_domain(root, "pacs", "photo", seed=1, part=(1, 2), shared=shared)
    apart = open_domain(root, "pacs", "photo", seed=1, part=(2, 2))
    monkeypatch.setattr(domains, "list_domain", None)
    second = open_domain(root, "pacs", "photo", seed=1, part=(2, 2), shared=shared)
    assert (second.train, second.digest) == (apart.train, apart.digest)
    assert second.images is first.images


def test_only_who_names_no_data_root_gets_a_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "write_stand_in", lambda root, dataset: tmp_path / dataset)
    assert find_data_root("pacs", None, None) == DataRoot(tmp_path / "pacs", stand_in=True)
    assert find_data_root("rotatedmnist", None, None) == DataRoot(None, stand_in=True)
    assert find_data_root("rotateddigits", None, None) == DataRoot(None, stand_in=False)
    assert find_data_root("pacs", tmp_path, None) == DataRoot(tmp_path, stand_in=False)
    (tmp_path / MARKER).touch()
    assert find_data_root("vlcs", tmp_path, None) == DataRoot(tmp_path, stand_in=True)
    for dataset, place in (("vlcs", None), ("pacs", tmp_path / "away")):
        with refused("data root", place):
            find_data_root(dataset, place, tmp_path)
