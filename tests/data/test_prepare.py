# SPDX-License-Identifier: Apache-2.0
"""Preparing data sets: from every published layout to a domain that opens; interruptions; checks."""

import fcntl
import gzip
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from fdg_plugins.data import (
    PACS,
    DataRoot,
    check_images,
    dataset_spec,
    find_data_root,
    open_domain,
)
from fdg_plugins.data.folders import LOCK, MANIFEST
from fdg_plugins.data.origins import Origin, Release
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation import Prepared, Source, checks, open_source, prepare, read_manifest
from tests.data.published import FOLDERS, content_below, image, published, write_files

PHOTOS = {f"photo/{name}/{n}.jpg": image(10 * label + n) for label, name in enumerate(PACS.classes) for n in range(2)}


def prepared(dataset: str, source: Path, root: Path, *, link: bool = False, any_counts: bool = True) -> Prepared:
    return prepare(dataset_spec(dataset), open_source(source), root, link=link, any_counts=any_counts)


def images_below(root: Path) -> dict[str, bytes]:
    return {path: content for path, content in content_below(root) if not path.endswith(MANIFEST)}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with the domain ``photo`` of PACS, two images for each class."""
    return write_files(tmp_path / "photos", PHOTOS)


# --- from every published layout --------------------------------------------------------------------------


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
def test_mnist_is_unpacked_to_where_it_is_read(packed: bool, mnist_root: Path, tmp_path: Path) -> None:
    raw = mnist_root / "mnist" / "MNIST" / "raw"
    for file in sorted(raw.iterdir()) if packed else ():
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    done = prepared("rotatedmnist_7k", raw, tmp_path / "new")
    assert {part: sum(numbers.values()) for part, numbers in done.counts.items()} == {"train": 50, "test": 16}
    assert len(open_domain(tmp_path / "new", "rotatedmnist", "angle_15", seed=0).test) == 11
    assert prepared("rotatedmnist", raw, tmp_path / "new").copied.kept == 4


# --- going on after an interruption -----------------------------------------------------------------------


class Interrupted(Source):
    """A source whose reading ends after some files, as a killed process or a full disk would end it."""

    def __init__(self, source: Source, after: int) -> None:
        self.name, self.files = source.name, source.files
        self._source, self._after = source, after

    def read(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        for number, found in enumerate(self._source.read(wanted)):
            if number == self._after:
                raise KeyboardInterrupt
            yield found


def test_a_second_call_goes_on_and_leaves_what_is_there(photos: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(KeyboardInterrupt):
        prepare(PACS, Interrupted(open_source(photos), after=5), root, any_counts=True)
    there = images_below(root / "pacs")
    assert len(there) == 5
    assert there.items() <= PHOTOS.items()
    assert not (root / "pacs" / MANIFEST).exists()
    done = prepared("pacs", photos, root)
    assert (done.copied.written, done.copied.kept) == (len(PHOTOS) - 5, 5)
    assert images_below(root / "pacs") == PHOTOS


def test_a_link_in_the_way_of_a_file_is_replaced_and_not_followed(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.jpg").write_bytes(b"mine")
    folder = tmp_path / "root" / "pacs" / "photo" / "dog"
    folder.mkdir(parents=True)
    (folder / "0.jpg").symlink_to(tmp_path / "outside.jpg")
    prepared("pacs", photos, tmp_path / "root")
    assert not (folder / "0.jpg").is_symlink()
    assert (tmp_path / "outside.jpg").read_bytes() == b"mine"


@pytest.mark.parametrize("place", ["pacs", "pacs/photo", "pacs/photo/dog"])
def test_a_folder_that_leads_out_of_the_data_root_is_not_written_to(place: str, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    link = tmp_path / "root" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match="is a link out of the data root"):
        prepared("pacs", photos, tmp_path / "root")
    assert list((tmp_path / "outside").iterdir()) == []


def test_two_at_a_time_are_refused(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "root" / "pacs").mkdir(parents=True)
    with (tmp_path / "root" / "pacs" / LOCK).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="pacs is being prepared by another process; expected one at a time"):
            prepared("pacs", photos, tmp_path / "root")
    prepared("pacs", photos, tmp_path / "root")


def test_a_data_set_whose_preparation_was_interrupted_is_refused_until_it_has_ended(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    prepared("pacs", photos, root)
    assert find_data_root("pacs", root, None) == DataRoot(root, stand_in=False)
    (root / "pacs" / "photo" / "dog" / "0.jpg").unlink()

    def interrupted(place: Path, content: bytes) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(sys.modules[prepare.__module__], "_replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepared("pacs", photos, root)
    with pytest.raises(DataError, match=r"pacs is not complete: .*fdg data prepare pacs") as refused:
        find_data_root("pacs", root, None)
    assert refused.value.public == "its preparation of data set pacs has not ended."
    assert find_data_root("vlcs", root, None) == DataRoot(root, stand_in=False)
    prepared("pacs", photos, root)
    assert find_data_root("pacs", root, None) == DataRoot(root, stand_in=False)


# --- checks -----------------------------------------------------------------------------------------------


@pytest.fixture
def small_releases(monkeypatch: pytest.MonkeyPatch) -> list[Release]:
    """Releases of PACS that the test fills, in place of the real ones."""
    releases: list[Release] = []

    def origin_of(dataset: str) -> Origin:
        assert dataset == "pacs"
        return Origin(page="", obtain="", licence="", terms="", releases=tuple(releases))

    monkeypatch.setattr(checks, "origin_of", origin_of)
    return releases


def release(name: str, photo: int, certain: bool = True) -> Release:
    return Release(name=name, source="", images={"photo": photo}, certain=certain)


def test_other_numbers_leave_no_manifest_unless_they_are_accepted(
    small_releases: list[Release], photos: Path, tmp_path: Path
) -> None:
    by_class = {"photo": (2, 2, 3, 2, 2, 2, 2)}
    small_releases.append(Release(name="PACS", source="", images={"photo": 15}, by_class=by_class))
    done = prepare(PACS, open_source(photos), tmp_path / "root")
    assert done.verdict.differences == ("photo has 14 images, expected 15 (giraffe 2 of 3)",)
    assert done.manifest is None
    assert not (tmp_path / "root" / "pacs" / MANIFEST).exists()
    accepted = prepare(PACS, open_source(photos), tmp_path / "root", any_counts=True)
    assert accepted.manifest is not None
    assert accepted.manifest.release is None
    assert read_manifest(tmp_path / "root", PACS) == accepted.manifest


def test_a_stand_in_is_not_mixed_with_images(photos: Path, tmp_path: Path) -> None:
    for place in ("root", "other/pacs"):
        write_files(tmp_path / place, {"STAND-IN.json": b"{}"})
        with pytest.raises(DataError, match="holds the STAND-IN; expected another one for images of PACS"):
            prepared("pacs", photos, tmp_path / place.removesuffix("/pacs"))
