# SPDX-License-Identifier: Apache-2.0
"""Atomic writing of JSON and tensors: no reader ever sees a partly written file. No pickle.

New files get the usual permissions under the process's umask; a file that replaces another keeps its owner, group and
mode, and a link stays a link to what is replaced. A ``private`` file is readable by its owner only (0600), in a folder
that only its owner can enter (0700), and takes the place of a link; once it is written, no power failure brings the
file back that it replaces, if the file system can promise it.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.values import depth_exceeds, shorten

# The errors that safetensors and torch raise for invalid content.
UNREADABLE = (SafetensorError, KeyError, TypeError, ValueError, RuntimeError, OverflowError)
DEEPEST_JSON = 64  # levels; this package's own files have fewer than ten
_UNFINISHED = re.compile(r"\..+\.[a-z0-9_]{8}")  # names that a file, or the folder of a link, has until it is whole


def user_path(text: str, environment: Mapping[str, str]) -> Path:
    """Return the absolute path for a user's text; a relative path refers to the directory where the user started.

    FLARE's processes change their working directory, but ``PWD`` still names the one in which they were started.
    """
    path = own_path(text)
    return path if path.is_absolute() else Path(environment.get("PWD", "")).absolute() / path


def own_path(text: str | Path) -> Path:
    """Return a path in which ``~`` stands for a person's home; raise ``SettingsError`` for one that is not known."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise SettingsError(
            f"path {text} begins with the home of a user who is not known here, expected ~/."
        ) from error


def named_path(variable: str, environment: Mapping[str, str]) -> Path | None:
    """Return the absolute path that a variable of the user's names, as :func:`user_path`; None if it names none."""
    text = environment.get(variable, "").strip()
    return user_path(text, environment) if text else None


def check_outside(job: Path, target: Path, what: str) -> None:
    """Raise ``SettingsError`` if ``target`` is ``job`` or below it: a copy of the job there would have no end."""
    if target.resolve().is_relative_to(job.resolve()):
        raise SettingsError(
            f"{what} is {target}, inside the job {job}, of which it gets a copy, expected another place."
        )


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an error of the file system into a ``DataError`` that names the folder."""
    try:
        yield
    except OSError as error:
        raise DataError(f"folder {folder} cannot be written: {error.strerror}.") from error


def write_bytes(path: Path, content: bytes, *, private: bool = False) -> None:
    """Replace ``path`` with ``content``; a reader finds either the old file or the new one, even after a crash.

    ``private``: only the owner can read the file, and :func:`make_private_folder` makes its folder. Raises
    ``DataError`` naming the file if it cannot be written; the old file is then unchanged.
    """
    try:
        _replace(path, content, private=private)
    except OSError as error:
        raise DataError(f"file {path} cannot be written: {error.strerror}.") from error


def make_private_folder(path: Path) -> None:
    """Create the folder and its missing parents, accessible to the owner only; restrict the folder if it exists.

    Raises ``OSError`` if it cannot be created. A folder of another owner is not changed.
    """
    for folder in _missing_folders(path):
        folder.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_mode & 0o077:
        with contextlib.suppress(PermissionError):
            path.chmod(0o700)


def _missing_folders(path: Path) -> list[Path]:
    """Return the folder and its parents that do not exist, outermost first."""
    missing = [path, *path.parents]
    while missing and missing[-1].is_dir():
        missing.pop()
    return missing[::-1]


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True, private: bool = False) -> Iterator[int]:
    """Lock the file at ``path`` for this process, creating it if needed; yield a descriptor for reading and appending.

    The lock ends with the block or the process, however it ends, and leaves nothing that needs manual removal. Raises
    ``BlockingIOError`` if another process holds the lock and ``wait`` is false, ``OSError`` if locking fails.
    """
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600 if private else 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield handle
    finally:
        os.close(handle)


def lock_folder(folder: Path) -> int | None:
    """Return a descriptor that holds a folder's lock until it is closed, at the latest with this process.

    None: another process holds it, or has removed the folder meanwhile. Where the file system has no locks, nobody is
    taken to hold one. Raises ``OSError`` if the folder cannot be opened.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if has_locked(handle) and _is_still(folder, handle):
        return handle
    os.close(handle)
    return None


def has_locked(handle: int) -> bool:
    """Return whether an open folder could be locked, or is on a file system without locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_still(folder: Path, handle: int) -> bool:
    """Return whether the folder is the one that was opened: whoever held it before may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except OSError:
        return False


def write_all(descriptor: int, content: bytes) -> None:
    """Write ``content`` to an open file or pipe; block until all of it is written. Raises ``OSError`` if it fails."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def keep_file(source: Path, target: Path, *, private: bool = False) -> None:
    """Replace ``target`` with the current content of ``source``, as a hard link if the file system supports them.

    ``source`` must be a file that is only ever replaced, as all files of this module are, and never written in place.
    ``private``: the folder of ``target`` is accessible to the owner only; a linked file keeps its permissions. Raises
    ``DataError`` naming the file if this fails.
    """
    try:
        _make_folder(target.parent, private=private)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            other_name = Path(folder) / target.name
            os.link(source, other_name)
            other_name.replace(target)
    except OSError:  # another file system, or one without links
        try:
            write_bytes(target, source.read_bytes(), private=private)
        except OSError as error:
            raise DataError(f"file {source} cannot be read: {error.strerror}.") from error


def remove_unfinished(folder: Path) -> None:
    """Remove what writers of this module, if they were killed, have left in ``folder``; none may be at work there."""
    for path in list(folder.glob(".*")):
        if not _UNFINISHED.fullmatch(path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # it takes space, and nothing reads it
                path.unlink()


def _make_folder(path: Path, *, private: bool) -> None:
    if private:
        make_private_folder(path)
    else:
        path.mkdir(parents=True, exist_ok=True)


def _replace(path: Path, content: bytes, *, private: bool) -> None:
    path = path if private else Path(os.path.realpath(path))
    _make_folder(path.parent, private=private)
    before = None if private else _status(path)
    temporary, handle = _new_file(path, 0o666 if before is None and not private else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            if before is not None:
                _take_over(handle, before)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if private:
        _sync_folder(path.parent)


def put_in_place(names: Mapping[Path, Path]) -> None:
    """Give files that are whole on disk their names, one right after the other; raise ``DataError`` if that fails.

    What belongs together is so either old or new, on a full disk too; only a death between two names divides it.
    """
    path = Path()
    try:
        for draft, path in names.items():
            draft.replace(path)
        for folder in {path.parent for path in names.values()}:
            _sync_folder(folder)
    except OSError as error:
        raise DataError(f"file {path} cannot be written: {error.strerror}.") from error


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk: a power failure would otherwise bring a replaced file back.

    Some network file systems cannot do so for a folder; there, what they do by themselves has to suffice.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _status(path: Path) -> os.stat_result | None:
    with contextlib.suppress(FileNotFoundError):
        return path.stat()
    return None


def _take_over(handle: int, before: os.stat_result) -> None:
    """Give a new file the mode, owner and group of the one that it replaces, as far as this user may."""
    with contextlib.suppress(PermissionError):
        os.fchmod(handle, stat.S_IMODE(before.st_mode))
        os.fchown(handle, -1, before.st_gid)  # which who is in the group may, and to give it away only root
        os.fchown(handle, before.st_uid, -1)


def _new_file(path: Path, mode: int) -> tuple[Path, int]:
    """Create a file next to ``path``; return its path and a descriptor for writing. The umask applies to ``mode``."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with contextlib.suppress(FileExistsError):
            return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def write_json(path: Path, value: Any, *, private: bool = False) -> None:
    """Replace ``path`` with ``value`` as JSON.

    Raises ``DataError`` naming the file if it cannot be written, and for NaN and infinities, which JSON lacks, although
    Python reads them from files of other programs.
    """
    try:
        text = json.dumps(value, indent=1, allow_nan=False)
    except ValueError as error:
        raise DataError(f"file {path} cannot be written as JSON: {error}.") from error
    write_bytes(path, f"{text}\n".encode(), private=private)


def read_json(path: Path) -> Any:
    """Return the JSON value in ``path``; raise ``DataError`` naming the file if it cannot be read or is not JSON."""
    try:
        return parse_json(path.read_bytes(), f"file {path}")
    except OSError as error:
        raise DataError(f"file {path} cannot be read: {error.strerror}.") from error


def parse_json(text: str | bytes, origin: str) -> Any:
    """Return the value of untrusted JSON text with at most ``DEEPEST_JSON`` levels of nesting.

    Raises ``DataError``, with one sentence that begins with ``origin``, for text that is not JSON, nests deeper, or has
    a key twice: of two settings, or entries of one site, the first would be lost without a word.
    """
    too_deep = f"{origin} nests deeper than {DEEPEST_JSON} levels."
    try:
        value = json.loads(text if isinstance(text, str) else text.decode("utf-8"), object_pairs_hook=_object)
    except RecursionError as error:
        raise DataError(too_deep) from error
    except ValueError as error:
        raise DataError(f"{origin} is not valid JSON: {error}.") from error
    if depth_exceeds(value, DEEPEST_JSON):
        raise DataError(too_deep)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"an object has {shorten(name)} twice")
    return value


def save_tensors(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    metadata: Mapping[str, str] | None = None,
    *,
    private: bool = False,
) -> None:
    """Replace ``path`` with a safetensors file of ``tensors``, stored as dense contiguous CPU tensors.

    One that a network has under several names is stored under each. Raises ``DataError`` naming the file if it cannot
    be written.
    """
    plain: dict[str, torch.Tensor] = {}
    storages: set[int] = set()
    for name, value in tensors.items():
        dense = value.detach().cpu().contiguous()
        place = dense.untyped_storage().data_ptr()
        plain[name] = dense.clone() if place in storages else dense  # safetensors refuses to store memory twice
        storages.add(place)
    try:
        content = save(plain, metadata=dict(metadata or {}))
    except SafetensorError as error:  # the names and the metadata, for instance, are longer than a header may be
        raise DataError(f"file {path} cannot be written: {error}.") from error
    write_bytes(path, content, private=private)


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in the safetensors file ``path``; raise ``DataError`` naming the file if it cannot be read."""
    try:
        return load(path.read_bytes())
    except OSError as error:
        raise DataError(f"file {path} cannot be read: {error.strerror}.") from error
    except UNREADABLE as error:
        raise DataError(f"file {path} is not a safetensors file: {error}.") from error
