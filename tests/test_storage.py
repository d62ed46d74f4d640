# SPDX-License-Identifier: Apache-2.0
"""Files are replaced whole or not at all, and what is read back is what was written."""

import hashlib
import os
import stat
from pathlib import Path

import pytest
import torch

from fdg_plugins.errors import DataError
from fdg_plugins.storage import (
    keep_file,
    load_tensors,
    locked,
    read_json,
    save_tensors,
    sha256_of,
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


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_replaced_and_keeps_its_mode_and_a_link_stays_one(tmp_path: Path) -> None:
    path, link = tmp_path / "new" / "folder" / "file", tmp_path / "link"
    write_bytes(path, b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_bytes(link, b"new")
    assert (path.read_bytes(), mode(path), link.is_symlink()) == (b"new", 0o640, True)
    assert names(path.parent) == ["file"]
    write_bytes(link, b"own", private=True)
    assert (link.is_symlink(), path.read_bytes()) == (False, b"new"), "a private file follows no link"
    assert sha256_of(link) == hashlib.sha256(b"own").hexdigest()


@pytest.mark.parametrize("links", [True, False])
def test_kept_file_stays(tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    last, kept = tmp_path / "last", tmp_path / "folder" / "kept"
    write_bytes(last, b"first")
    for _ in range(2):  # the second time, it is the same file
        keep_file(last, kept)
    write_bytes(last, b"second")
    assert (last.read_bytes(), kept.read_bytes()) == (b"second", b"first")
    assert names(kept.parent) == ["kept"]


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_private_file_is_its_owners_alone(tmp_path: Path, mask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(stat.S_IMODE(os.fstat(handle).st_mode)))
    previous = os.umask(mask)
    write_json(tmp_path / "one" / "two" / "a.json", 1, private=True)
    os.umask(previous)
    found = {str(path.relative_to(tmp_path)): mode(path) for path in tmp_path.rglob("*")}
    assert found == {"one": 0o700, "one/two": 0o700, "one/two/a.json": 0o600}
    assert synced == [0o600, 0o700], "of the file before it has its name, and of its folder"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_writing_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    write_bytes(tmp_path / "file", b"old")

    def fail(*_: object) -> None:
        assert (tmp_path / "file").read_bytes() == b"old"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with pytest.raises(DataError):
        write_bytes(tmp_path / "file", b"new" * 1000)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_what_is_not_json_is_neither_written_nor_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"loss": 1.0})
    for number in (float("nan"), float("inf")):
        with pytest.raises(DataError):
            write_json(path, {"loss": number})
    assert read_json(path) == {"loss": 1.0}
    for content in (b"", b"{", b"{'a': 1}", b"\xff\xfe{}", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(DataError):
            read_json(path)


def test_tensors_of_any_memory_layout_round_trip_with_dtype_shape_and_every_bit(tmp_path: Path) -> None:
    shared = torch.arange(48.0).reshape(1, 3, 4, 4)
    tensors = {
        "bfloat16": torch.tensor([1.0, -0.5, 3.0e38]).bfloat16(),
        "mask": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "special": torch.tensor([float("nan"), float("inf"), -0.0]),
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "every_second": torch.arange(10)[::2],
        "channels_last": shared.to(memory_format=torch.channels_last),
        "one": shared,
        "same": shared,
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    save_tensors(tmp_path / "a.safetensors", tensors)
    loaded = load_tensors(tmp_path / "a.safetensors")
    assert loaded.keys() == tensors.keys()
    for name, value in tensors.items():
        torch.testing.assert_close(loaded[name], value.detach(), rtol=0, atol=0, equal_nan=True)
        assert loaded[name].is_contiguous()


def test_a_pickle_is_refused_and_never_executed(tmp_path: Path) -> None:
    torch.save({"a": Trap(tmp_path / "sprung")}, tmp_path / "model.pth")
    with pytest.raises(DataError):
        load_tensors(tmp_path / "model.pth")
    assert not (tmp_path / "sprung").exists()
    torch.load(tmp_path / "model.pth", weights_only=False)
    assert (tmp_path / "sprung").exists(), "the trap itself must work"


def test_a_file_or_folder_is_held_by_one_at_a_time_and_free_after_the_block(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "lock"):
        with locked(path, wait=False), pytest.raises(BlockingIOError), locked(path, wait=False):
            pass
        with pytest.raises(InterruptedError), locked(path, wait=False):
            raise InterruptedError
        with locked(path):
            assert path.exists()


def test_a_path_is_below_the_folder_in_which_the_user_started_or_their_home() -> None:
    assert user_path("~/data", {}) == Path.home() / "data"
    assert user_path("here", {"PWD": "/somewhere"}) == Path("/somewhere/here")
