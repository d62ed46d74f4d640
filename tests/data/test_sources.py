# SPDX-License-Identifier: Apache-2.0
"""Folders and archives as sources: what they list and read, and that every unsafe or broken one is refused."""

import os
import random
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation import sources
from fdg_plugins.lab.preparation.sources import Source, open_source
from tests.data.published import write_files, write_tar, write_zip

FILES = {"top/a/1.jpg": b"one", "top/b/2.jpg": b"two" * 100, "list.txt": b""}
ARCHIVES: dict[str, Callable[[Path, Mapping[str, bytes]], Path]] = {
    "x.zip": write_zip,
    "x.tar": write_tar,
    "x.tar.gz": write_tar,
}


def make_source(kind: str, folder: Path, files: Mapping[str, bytes]) -> Source:
    path = write_files(folder / "source", files) if kind == "folder" else ARCHIVES[kind](folder / kind, files)
    return open_source(path)


@pytest.mark.parametrize("kind", ["folder", *ARCHIVES])
def test_a_source_lists_its_files_with_their_sizes_and_reads_those_that_are_wanted(kind: str, tmp_path: Path) -> None:
    source = make_source(kind, tmp_path, FILES)
    assert source.files == {path: len(content) for path, content in FILES.items()}
    assert dict(source.read(FILES.keys())) == FILES
    assert list(source.read({"top/b/2.jpg"})) == [("top/b/2.jpg", b"two" * 100)]
    assert source.read_one("top/a/1.jpg") == b"one"
    assert list(source.read(set())) == []


@pytest.mark.parametrize("kind", ARCHIVES)
@pytest.mark.parametrize(
    "name", ["../out.jpg", "top/../../out.jpg", "/etc/out.jpg", "C:/out.jpg", "a\\b.jpg", "a\nb.jpg"]
)
def test_a_name_that_leads_out_of_an_archive_refuses_it(kind: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"archive"):
        make_source(kind, tmp_path, {**FILES, name: b"bad"})


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_link_or_device_in_a_tar_archive_refuses_it(kind: bytes, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        member = tarfile.TarInfo("photo/dog/1.jpg")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(DataError, match=r"photo/dog/1\.jpg|link"):
        open_source(tmp_path / "x.tar")


def test_a_link_in_a_zip_archive_refuses_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        info = zipfile.ZipInfo("photo/dog/1.jpg")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match=r"holds the link"):
        open_source(tmp_path / "x.zip")


@pytest.mark.parametrize("kind", ["folder", *ARCHIVES])
def test_a_file_larger_than_any_image_is_refused_when_it_is_wanted(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_FILE_BYTES", 299)
    source = make_source(kind, tmp_path, FILES)
    assert dict(source.read({"top/a/1.jpg"})) == {"top/a/1.jpg": b"one"}
    with pytest.raises(DataError, match=r"file .*top/b/2\.jpg.* has more than 299 bytes"):
        dict(source.read(FILES.keys()))


@pytest.mark.parametrize("kind", ["folder", *ARCHIVES])
def test_more_files_than_any_data_set_has_are_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_FILES", 2)
    with pytest.raises(DataError, match="more than 2"):
        make_source(kind, tmp_path, FILES)


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_damaged_archive_ends_in_one_sentence_or_is_read(kind: str, tmp_path: Path) -> None:
    path = ARCHIVES[kind](tmp_path / kind, FILES)
    whole = path.read_bytes()
    draw = random.Random(0)
    refused = 0
    for attempt in range(60):
        damaged = bytearray(whole[: draw.randrange(len(whole))] if attempt % 2 else whole)
        for _ in range(4 if damaged else 0):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(damaged)
        try:
            source = open_source(path)
            dict(source.read(source.files))
        except DataError:  # anything else would end the test
            refused += 1
    assert refused > 20


def test_an_encrypted_zip_archive_ends_in_one_sentence(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", {"a.jpg": b"content"})
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1  # the flag of encryption, in both headers
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot be read .*password.*; expected an undamaged zip or tar file without"):
        open_source(path).read_one("a.jpg")


def test_what_is_neither_folder_nor_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"source .*away is not there; expected a folder or an archive \(\.zip, \.tar,"):
        open_source(tmp_path / "away")
    (tmp_path / "x.zip").write_bytes(b"no archive at all")
    with pytest.raises(DataError, match=r"file .*x\.zip is not a zip or tar archive"):
        open_source(tmp_path / "x.zip")


def test_links_that_leave_a_folder_are_refused_and_links_within_it_are_read(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "source", FILES)
    (folder / "top" / "a" / "link.jpg").symlink_to(folder / "top" / "b" / "2.jpg")
    assert open_source(folder).read_one("top/a/link.jpg") == b"two" * 100
    (tmp_path / "secret").write_text("secret")
    (folder / "top" / "a" / "out.jpg").symlink_to(tmp_path / "secret")
    with pytest.raises(DataError, match=r"out\.jpg is a link"):
        open_source(folder)


def test_a_pipe_in_a_folder_is_passed_over_before_anything_waits_on_it(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "source", FILES)
    os.mkfifo(folder / "top" / "pipe.jpg")
    assert open_source(folder).files.keys() == FILES.keys()
