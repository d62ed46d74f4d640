# SPDX-License-Identifier: Apache-2.0
"""Atomic writing of JSON and tensors: no reader ever sees a partly written file. No pickle.

New files get the usual permissions under the process's umask, and a file that replaces another keeps its mode. A
``private`` file is readable by its owner only (0600), in a folder that only its owner can enter (0700), and takes the
place of a link; once it is written, no power failure brings the file back that it replaces.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save

from fdg_plugins.errors import DataError, SettingsError

# The errors that safetensors and torch raise for invalid content.
UNREADABLE = (SafetensorError, KeyError, TypeError, ValueError, RuntimeError, OverflowError)
CHECKSUM = "sha256"


def user_path(text: str, environment: Mapping[str, str]) -> Path:
    """Return the absolute path for a user's text; a relative path refers to the directory where the user started.

    FLARE's processes change their working directory, but ``PWD`` still names the one in which they were started.
    """
    path = Path(text).expanduser()
    return path if path.is_absolute() else Path(environment.get("PWD", "")).absolute() / path


def named_path(variable: str, environment: Mapping[str, str]) -> Path | None:
    """Return the absolute path that a variable of the user's names, as :func:`user_path`; None if it names none."""
    text = environment.get(variable, "").strip()
    return user_path(text, environment) if text else None


def check_outside(job: Path, target: Path, what: str) -> None:
    """Raise ``SettingsError`` if ``target`` is ``job`` or below it: a copy of the job there would have no end."""
    if target.resolve().is_relative_to(job.resolve()):
        raise SettingsError(field=what, value=str(target), expected=f"a place outside the job {job}, which is copied")


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an error of the file system into a ``DataError`` that names the folder."""
    try:
        yield
    except OSError as error:
        raise DataError(f"folder {folder} cannot be written: {error.strerror}.") from error


def make_private_folder(path: Path) -> None:
    """Create the folder and its missing parents, accessible to the owner only; restrict the folder if it exists.

    Raises ``OSError`` if it cannot be created. A folder of another owner is not changed.
    """
    for folder in (*reversed(path.parents), path):
        folder.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(PermissionError):
        path.chmod(0o700)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True, private: bool = False) -> Iterator[int]:
    """Lock a file, which is created if needed, or a folder; yield a descriptor for reading and, of a file, appending.

    The lock ends with the block or the process, however it ends. Raises ``BlockingIOError`` if another process holds it
    and ``wait`` is false, ``OSError`` if locking fails.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_APPEND | os.O_CREAT
    handle = os.open(path, flags | os.O_CLOEXEC, 0o600 if private else 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield handle
    finally:
        os.close(handle)


def write_bytes(path: Path, content: bytes, *, private: bool = False, durable: bool = True) -> None:
    """Replace ``path`` with ``content``; a reader finds either the old file or the new one, even after a crash.

    ``private``: only the owner can read the file, and :func:`make_private_folder` makes its folder. One that need not
    be ``durable`` may be lost or damaged if the machine fails. Raises ``DataError`` naming the file if it cannot be
    written; the old file is then unchanged.
    """
    place = path if private else Path(os.path.realpath(path))
    try:
        with _temporary(place, private) as temporary:
            temporary.touch(0o600 if private else 0o666, exist_ok=False)
            temporary.write_bytes(content)
            if not private and place.exists():
                shutil.copymode(place, temporary)
            if durable:
                _sync(temporary)
            temporary.replace(place)
        if private and durable:
            with contextlib.suppress(OSError):  # some network file systems cannot do so for a folder
                _sync(place.parent)
    except OSError as error:
        raise DataError(f"file {path} cannot be written: {error.strerror}.") from error


@contextlib.contextmanager
def _temporary(place: Path, private: bool) -> Iterator[Path]:
    """Make the folder of ``place``; yield a new hidden name next to it, of which nothing is left in the end."""
    if private:
        make_private_folder(place.parent)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def keep_file(source: Path, target: Path, *, private: bool = False) -> None:
    """Replace ``target`` with the current content of ``source``, as a hard link if the file system supports them.

    ``source`` must be a file that is only ever replaced, as all files of this module are, and never written in place.
    ``private``: the folder of ``target`` is accessible to the owner only, and the file is on disk afterwards; a linked
    file keeps its permissions. Raises ``DataError`` naming the file if this fails.
    """
    try:
        with _temporary(target, private) as temporary:
            os.link(source, temporary)
            if private:
                _sync(temporary)
            temporary.replace(target)
    except OSError:  # another file system, or one without links
        write_bytes(target, _content(source), private=private)


def link(source: str, target: str) -> None:
    """Make ``target`` a hard link to the file ``source``, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def write_json(path: Path, value: Any, *, private: bool = False, durable: bool = True) -> None:
    """Replace ``path`` with ``value`` as JSON.

    Raises ``DataError`` naming the file if it cannot be written, and for NaN and infinities, which JSON lacks, although
    Python reads them from files of other programs.
    """
    try:
        text = json.dumps(value, indent=1, allow_nan=False)
    except ValueError as error:
        raise DataError(f"file {path} cannot be written as JSON: {error}.") from error
    write_bytes(path, f"{text}\n".encode(), private=private, durable=durable)


def read_json(path: Path) -> Any:
    """Return the JSON value in ``path``; raise ``DataError`` naming the file if it cannot be read or is not JSON."""
    return parse_json(_content(path), f"file {path}")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"file {path} cannot be read: {error.strerror}.") from error


def parse_json(text: str | bytes, origin: str) -> Any:
    """Return the value of JSON text; raise ``DataError``, which begins with ``origin``, for text that is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{origin} is not valid JSON: {error}.") from error


def save_tensors(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    metadata: Mapping[str, str] | None = None,
    *,
    private: bool = False,
    durable: bool = True,
) -> None:
    """Replace ``path`` with a safetensors file of ``tensors``, stored as dense contiguous CPU tensors.

    One that a network has under several names is stored under each.
    """
    plain: dict[str, torch.Tensor] = {}
    storages: set[int] = set()
    for name, value in tensors.items():
        dense = value.detach().cpu().contiguous()
        place = dense.untyped_storage().data_ptr()
        plain[name] = dense.clone() if place in storages else dense  # safetensors refuses to store memory twice
        storages.add(place)
    write_bytes(path, save(plain, metadata=dict(metadata or {})), private=private, durable=durable)


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in the safetensors file ``path``; raise ``DataError`` naming the file if it cannot be read."""
    try:
        return load(_content(path))
    except UNREADABLE as error:
        raise DataError(f"file {path} is not a safetensors file: {error}.") from error


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal, read in parts; raise ``OSError`` if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- state files: tensors with a version, texts and a checksum in the metadata; private and replaced atomically ---


def save_checked_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Replace ``path`` with a safetensors file of ``tensors``, ``metadata`` (including ``version``) and a checksum.

    The SHA-256 covers the content as it is read back, so content that passes the check is the content that was written.
    It detects damage, not forgery: anyone who can write the file can recompute it.
    """
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_tensors(path, plain, {**metadata, CHECKSUM: checksum_of_tensors(plain, metadata)}, private=True)


def load_checked_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the tensors in ``path`` and its metadata, without the checksum."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (OSError, *UNREADABLE) as error:
        raise DataError(f"file {path} cannot be read: {' '.join(str(error).split()).rstrip('.')}.") from error
    if metadata.pop(CHECKSUM, None) != checksum_of_tensors(tensors, metadata):
        raise DataError(f"file {path} is damaged: its checksum is not that of its content.")
    return tensors, metadata


def checksum_of_tensors(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> str:
    """Return the digest of contiguous CPU tensors: names, dtypes, shapes, metadata, then values in order of name."""
    names = sorted(tensors)
    described = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in names]
    digest = hashlib.sha256(json.dumps([described, dict(metadata)], sort_keys=True).encode())
    for name in names:
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
