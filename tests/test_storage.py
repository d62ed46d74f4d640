# SPDX-License-Identifier: Apache-2.0
"""Files are replaced whole or not at all, and what is read back is what was written."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.storage import (
    keep_file,
    load_tensors,
    lock_folder,
    locked,
    own_path,
    read_json,
    remove_unfinished,
    save_tensors,
    user_path,
    write_bytes,
    write_json,
)


class Trap:
    """An object whose unpickling leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.trace),)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- replacement ------------------------------------------------------------------------------------


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_bytes(path, b"old")
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["file"]


def test_a_file_that_is_kept_under_another_name_stays_when_the_first_is_replaced(tmp_path: Path) -> None:
    last, kept = tmp_path / "last", tmp_path / "folder" / "kept"
    write_bytes(last, b"first")
    keep_file(last, kept)
    write_bytes(last, b"second")
    assert (last.read_bytes(), kept.read_bytes()) == (b"second", b"first")
    keep_file(last, kept)
    assert kept.read_bytes() == b"second"
    assert last.samefile(kept), "no bytes were written"
    assert names(kept.parent) == ["kept"]


@contextmanager
def masked(mask: int) -> Iterator[None]:
    previous = os.umask(mask)
    try:
        yield
    finally:
        os.umask(previous)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    for mask in [0o000, 0o022, 0o077]:
        for own in [0o600, 0o640, 0o444]:
            path = tmp_path / "file"
            path.write_bytes(b"old")
            path.chmod(own)
            with masked(mask):
                write_bytes(path, b"new")
            assert (path.read_bytes(), mode(path)) == (b"new", own)


def test_a_file_that_others_cannot_read_is_at_no_moment_open_to_them_when_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = os.open

    def look(path: str, flags: int, mode: int = 0o777) -> int:
        handle = real(path, flags, mode)
        seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return handle

    (tmp_path / "file").touch(0o600)
    monkeypatch.setattr(os, "open", look)
    with masked(0o000):
        write_bytes(tmp_path / "file", b"new")
    assert seen == [0o600]


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "managed").mkdir()
    real, link = tmp_path / "managed" / "resources.json", tmp_path / "resources.json"
    real.write_text("{}", encoding="utf-8")
    real.chmod(0o600)
    link.symlink_to("managed/resources.json")
    write_json(link, {"a": 1})
    assert link.is_symlink()
    assert (read_json(real), mode(real)) == ({"a": 1}, 0o600)
    assert names(real.parent) == ["resources.json"]
    write_json(link, {"a": 2}, private=True)
    assert (link.is_symlink(), read_json(real)) == (False, {"a": 1}), "a private file follows no link"


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_private_file_is_its_owners_alone_and_so_are_the_folders_made_for_it(tmp_path: Path, mask: int) -> None:
    with masked(mask):
        write_json(tmp_path / "one" / "two" / "a.json", 1, private=True)
        save_tensors(tmp_path / "one" / "two" / "a.safetensors", {}, private=True)
    found = {str(path.relative_to(tmp_path)): mode(path) for path in tmp_path.rglob("*")}
    assert found == {"one": 0o700, "one/two": 0o700, "one/two/a.json": 0o600, "one/two/a.safetensors": 0o600}


def test_a_private_file_is_at_no_moment_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = os.fsync

    def look(handle: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
        real(handle)

    monkeypatch.setattr(os, "fsync", look)
    with masked(0o000):
        write_bytes(tmp_path / "file", b"", private=True)
    assert seen == [0o600, 0o700], "of the file, and of its folder"


def test_a_private_file_and_its_name_are_on_disk_once_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bytes]] = []

    def look(handle: int) -> None:
        synced.append((os.fstat(handle).st_ino, (tmp_path / "file").read_bytes()))

    write_bytes(tmp_path / "file", b"old", private=True)
    monkeypatch.setattr(os, "fsync", look)
    write_bytes(tmp_path / "file", b"new", private=True)
    inodes = [(tmp_path / "file").stat().st_ino, tmp_path.stat().st_ino]
    assert synced == list(zip(inodes, [b"old", b"new"], strict=True))


DYING = """
import os, sys
from pathlib import Path
from fdg_plugins.storage import keep_file, write_bytes

folder = Path(sys.argv[1])
os.fsync = os.link = lambda *_: os._exit(9)
if sys.argv[2] == "write":
    write_bytes(folder / "state", b"new")
else:
    keep_file(folder / "state", folder / "kept")
"""


@pytest.mark.parametrize("what", ["write", "keep"])
def test_what_a_killed_writer_has_left_is_removed_and_nothing_else(tmp_path: Path, what: str) -> None:
    names = {"state", ".hidden", ".two.parts", "no.dot.a1b2c3d4", ".upper.A1B2C3D4"}
    for name in names:
        (tmp_path / name).write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", DYING, str(tmp_path), what], check=False)
    assert done.returncode == 9
    assert len(list(tmp_path.iterdir())) == len(names) + 1
    remove_unfinished(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == names
    assert (tmp_path / "state").read_bytes() == b"old"
    remove_unfinished(tmp_path / "not there")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_file_and_no_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    write_bytes(tmp_path / "file", b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with pytest.raises(DataError, match="cannot be written: No space left on device"):
        write_bytes(tmp_path / "file", b"new" * 1000)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_until_the_whole_content_is_written_a_reader_meets_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bytes(tmp_path / "file", b"old")
    seen: list[bytes] = []
    real = os.fsync

    def look(handle: int) -> None:
        seen.append((tmp_path / "file").read_bytes())
        real(handle)

    monkeypatch.setattr(os, "fsync", look)
    write_bytes(tmp_path / "file", b"new")
    assert seen == [b"old"]


# --- JSON -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_json_refuses_numbers_it_has_no_word_for_and_keeps_the_old_file(tmp_path: Path, number: float) -> None:
    write_json(tmp_path / "a.json", {"loss": 1.0})
    with pytest.raises(DataError, match=r"cannot be written as JSON: Out of range float values are not JSON compliant"):
        write_json(tmp_path / "a.json", {"loss": number})
    assert read_json(tmp_path / "a.json") == {"loss": 1.0}


def test_a_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    cases: list[bytes] = [b"", b"{", b"{'a': 1}", b"\xff\xfe{}"]
    for content in cases:
        (tmp_path / "broken.json").write_bytes(content)
        with pytest.raises(DataError, match=r"file .*/broken\.json is not valid JSON: "):
            read_json(tmp_path / "broken.json")


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_json_that_nests_too_deep_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for text in ["[" * 30_000, nested(100_000), nested(65), '{"a":' * 65 + "1" + "}" * 65]:
        (tmp_path / "deep.json").write_text(text)
        with pytest.raises(DataError, match=r"^file .*/deep\.json nests deeper than 64 levels\.$"):
            read_json(tmp_path / "deep.json")


# --- tensors ----------------------------------------------------------------------------------------

TENSORS = {
    "float": torch.arange(6.0).reshape(2, 3),
    "bfloat16": torch.tensor([1.0, -0.5, 3.0e38]).bfloat16(),
    "counter": torch.tensor(7),
    "mask": torch.tensor([True, False]),
    "empty": torch.zeros(0, 3),
    "special": torch.tensor([float("nan"), float("inf"), -0.0]),
}


def test_tensors_round_trip_with_dtype_shape_and_every_bit(tmp_path: Path) -> None:
    for name in sorted(TENSORS):
        save_tensors(tmp_path / "a.safetensors", {name: TENSORS[name]})
        loaded = load_tensors(tmp_path / "a.safetensors")
        assert list(loaded) == [name]
        torch.testing.assert_close(loaded[name], TENSORS[name], rtol=0, atol=0, equal_nan=True)


def test_views_of_any_memory_layout_round_trip_by_value(tmp_path: Path) -> None:
    images = torch.arange(48.0).reshape(1, 3, 4, 4)
    views = {
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "every_second": torch.arange(10)[::2],
        "channels_last": images.to(memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    assert not any(views[name].is_contiguous() for name in ("transposed", "every_second", "channels_last"))
    save_tensors(tmp_path / "a.safetensors", views)
    loaded = load_tensors(tmp_path / "a.safetensors")
    assert all(torch.equal(loaded[name], value) for name, value in views.items())
    assert all(value.is_contiguous() and not value.requires_grad for value in loaded.values())


@pytest.mark.parametrize("content", [b"", b"not a model", b"\xff" * 64])
def test_a_file_that_holds_no_tensors_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.safetensors").write_bytes(content)
    with pytest.raises(DataError, match=r"file .*/broken\.safetensors is not a safetensors file: "):
        load_tensors(tmp_path / "broken.safetensors")


def test_a_pickle_is_refused_and_never_executed(tmp_path: Path) -> None:
    torch.save({"a": Trap(tmp_path / "sprung")}, tmp_path / "model.pth")
    with pytest.raises(DataError, match=r"model\.pth is not a safetensors file"):
        load_tensors(tmp_path / "model.pth")
    assert not (tmp_path / "sprung").exists()
    torch.load(tmp_path / "model.pth", weights_only=False)
    assert (tmp_path / "sprung").exists(), "the trap itself must work"


# --- locks ------------------------------------------------------------------------------------------


def test_a_file_is_held_by_one_at_a_time_and_free_after_the_block(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path, wait=False):
        with pytest.raises(BlockingIOError), locked(path, wait=False):
            pass
        assert path.exists()
    with pytest.raises(InterruptedError), locked(path, wait=False):
        raise InterruptedError
    with locked(path, wait=False) as handle:
        os.write(handle, b"more")
    with locked(path) as handle:
        os.write(handle, b" and more")
    assert path.read_bytes() == b"more and more"


def test_the_home_of_a_user_who_is_not_known_is_refused_by_the_path() -> None:
    with pytest.raises(
        SettingsError, match=r"^path ~nobody-of-that-name/data begins with the home of a user who is not"
    ):
        user_path("~nobody-of-that-name/data", {})
    assert own_path("~/data") == Path.home() / "data"
    assert own_path(Path("here")) == Path("here")


# --- the lock of a folder ---


def test_a_folder_is_locked_once_and_free_again_when_its_descriptor_is_closed(tmp_path: Path) -> None:
    first = lock_folder(tmp_path)
    assert first is not None
    assert lock_folder(tmp_path) is None
    os.close(first)
    again = lock_folder(tmp_path)
    assert again is not None
    os.close(again)


def test_a_folder_that_was_removed_meanwhile_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = fcntl.flock

    def remove_first(handle: int, operation: int) -> None:
        (tmp_path / "held").rmdir()
        known(handle, operation)

    (tmp_path / "held").mkdir()
    monkeypatch.setattr(fcntl, "flock", remove_first)
    assert lock_folder(tmp_path / "held") is None


def test_on_a_file_system_without_locks_a_folder_counts_as_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    handle = lock_folder(tmp_path)
    assert handle is not None
    os.close(handle)
