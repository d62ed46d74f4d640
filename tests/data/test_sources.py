# SPDX-License-Identifier: Apache-2.0
"""Folders and archives as sources: what they list and read, and that every unsafe or broken one is refused."""

import os
import random
import tarfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation import sources
from fdg_plugins.lab.preparation.sources import opened
from tests.data.conftest import refused
from tests.data.published import write_files, write_tar, write_zip

FILES = {"top/a/1.jpg": b"one", "top/b/2.jpg": b"two" * 100, "list.txt": b""}
ARCHIVES: dict[str, Callable[[Path, Mapping[str, bytes]], Path]] = {
    "x.zip": write_zip,
    "x.tar": write_tar,
    "x.tar.gz": write_tar,
}


def content(path: Path) -> dict[str, bytes]:
    """Return what the source at ``path`` holds."""
    room = path.parent / "room"
    room.mkdir(exist_ok=True)
    with opened(path, room) as source:
        found = {file: source.read(file) for file in source.files}
    assert list(room.iterdir()) == [], "nothing unpacked is left"
    return found


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_folder_an_archive_and_a_folder_of_archives_are_read_alike(kind: str, tmp_path: Path) -> None:
    assert content(ARCHIVES[kind](tmp_path / kind, FILES)) == FILES
    folder = write_files(tmp_path / "source", {**FILES, ".hidden/3.jpg": b"", "__MACOSX/4.jpg": b""})
    assert content(folder) == FILES
    ARCHIVES[kind](folder / kind, {"top/a/1.jpg": b"another", "more.jpg": b"more"})
    assert content(folder) == {**FILES, "more.jpg": b"more"}


@pytest.mark.parametrize("kind", ARCHIVES)
@pytest.mark.parametrize("name", ["top/../../out.jpg", "/etc/out.jpg"])
def test_no_archive_writes_outside(kind: str, name: str, tmp_path: Path) -> None:
    archive = ARCHIVES[kind](tmp_path / kind, {**FILES, name: b"bad"})
    with suppress(DataError):
        assert content(archive).keys() >= FILES.keys()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["room", kind]
    assert not Path("/etc/out.jpg").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_a_link_out_of_a_tar_archive_or_a_device_in_it_refuses_it(kind: bytes, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        member = tarfile.TarInfo("photo/dog/1.jpg")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    with refused("", "photo/dog/1.jpg"):
        content(tmp_path / "x.tar")


def test_more_than_the_disk_or_an_image_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bombs = [make(tmp_path / f"bomb-{kind}", {"1.jpg": bytes(2_000_000)}) for kind, make in ARCHIVES.items()]
    with monkeypatch.context() as small:
        small.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**6))
        for path in bombs:
            with pytest.raises(DataError) as caught:
                content(path)
            assert "disk" in str(caught.value)
    monkeypatch.setattr(sources, "MAX_FILE_BYTES", 299)
    with pytest.raises(DataError):
        content(write_files(tmp_path / "source", FILES))


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_damaged_archive_ends_in_one_sentence_or_is_read(kind: str, tmp_path: Path) -> None:
    path = ARCHIVES[kind](tmp_path / kind, FILES)
    whole = path.read_bytes()
    draw = random.Random(0)
    count = 0
    for attempt in range(60):
        damaged = bytearray(whole[: draw.randrange(len(whole))] if attempt % 2 else whole)
        for _ in range(4 if damaged else 0):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(damaged)
        try:
            content(path)
        except DataError:  # anything else would end the test
            count += 1
    assert count > 20


def test_an_encrypted_archive_and_what_is_none_are_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", {"a.jpg": b"content"})
    changed = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        changed[changed.index(signature) + offset] |= 1  # the flag of encryption, in both headers
    for broken in (bytes(changed), b"no archive at all", None):
        path.unlink() if broken is None else path.write_bytes(broken)
        with pytest.raises(DataError):
            content(path)


def test_links_that_leave_a_folder_are_refused_and_pipes_are_passed_over(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "source", FILES)
    (folder / "top" / "a" / "link.jpg").symlink_to(folder / "top" / "b" / "2.jpg")
    os.mkfifo(folder / "top" / "pipe.jpg")
    assert content(folder) == {**FILES, "top/a/link.jpg": b"two" * 100}
    (tmp_path / "secret").write_text("secret")
    (folder / "top" / "a" / "out.jpg").symlink_to(tmp_path / "secret")
    with pytest.raises(DataError):
        content(folder)
