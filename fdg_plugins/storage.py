# SPDX-License-Identifier: Apache-2.0
"""Files that must never be seen half-written: JSON and tensors, replaced atomically; no pickle."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from fdg_plugins.errors import DataError


def user_path(text: str, environment: Mapping[str, str]) -> Path:
    """Return the path that a user wrote in the environment; a relative one is relative to the user's own folder.

    FLARE's processes change their working folder, and ``PWD`` still names the one they were started from.
    """
    path = Path(text).expanduser()
    return path if path.is_absolute() else Path(environment.get("PWD", "")).absolute() / path


def write_bytes(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``: a reader, or a crash at any moment, meets the old file or the new one.

    Raises ``DataError`` naming the file if it cannot be written, the old one being as it was.
    """
    try:
        _replace(path, content)
    except OSError as error:
        raise DataError(f"file {path} cannot be written: {error.strerror}.") from error


def keep_file(source: Path, target: Path) -> None:
    """Replace ``target`` by what is in ``source`` now, at no cost where one file may have two names.

    ``source`` must be a file that is only ever replaced, as all files of this module are, and never written into.
    Raises ``DataError`` naming the file if that cannot be done.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            other_name = Path(folder) / target.name
            os.link(source, other_name)
            other_name.replace(target)
    except OSError:  # another file system, or one without links
        try:
            write_bytes(target, source.read_bytes())
        except OSError as error:
            raise DataError(f"file {source} cannot be read: {error.strerror}.") from error


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` by ``value`` as JSON; NaN and infinities are refused, since JSON has none."""
    write_bytes(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Return the JSON value in ``path``."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"file {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise DataError(f"file {path} is not valid JSON: {error}.") from error


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Replace ``path`` by ``tensors`` in the safetensors format, on the CPU, dense and contiguous."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_bytes(path, save(plain, metadata=dict(metadata or {})))


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in the safetensors file ``path``."""
    try:
        return load(path.read_bytes())
    except OSError as error:
        raise DataError(f"file {path} cannot be read: {error.strerror}.") from error
    except Exception as error:  # safetensors raises its own SafetensorError, which derives from Exception only
        raise DataError(f"file {path} is not a safetensors file: {error}.") from error
