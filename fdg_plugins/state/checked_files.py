# SPDX-License-Identifier: Apache-2.0
"""State files (JSON objects or tensors) with a checksum of their content, to detect damage.

The files are private and replaced atomically. The SHA-256 covers the content as it is read back, not the bytes of the
file, so content that passes the check is the content that was written. It detects damage, not forgery: anyone who can
write the file can recompute it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from fdg_plugins.errors import DataError
from fdg_plugins.storage import UNREADABLE, read_json, save_tensors, write_json

CHECKSUM = "sha256"
VERSION = "version"


def write_checked_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace ``path`` with the JSON object ``value`` and its checksum; raise ``DataError`` if it cannot be written."""
    write_json(path, {**value, CHECKSUM: _checksum_of_json(value)}, private=True)


def read_checked_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in ``path``, without its checksum.

    Raises ``DataError`` naming the file if it cannot be read or is damaged.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError(f"file {path} is damaged: it holds a {type(value).__name__}, expected an object.")
    _check(path, value, lambda: _checksum_of_json(value))
    return value


def save_checked_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Replace ``path`` with a safetensors file of ``tensors``, ``metadata`` (including ``version``) and a checksum."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_tensors(path, plain, {**metadata, CHECKSUM: checksum_of_tensors(plain, metadata)}, private=True)


def load_checked_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the tensors in ``path`` and its metadata, without the checksum.

    Raises ``DataError`` naming the file if it cannot be read or is damaged.
    """
    try:
        tensors, metadata = _load(path)
    except OSError as error:
        raise DataError(f"file {path} cannot be read: {error.strerror or error}.") from error
    except UNREADABLE as error:
        raise DataError(f"file {path} is damaged: {_first_line(error)}.") from error
    _check(path, metadata, lambda: checksum_of_tensors(tensors, metadata))
    return tensors, metadata


def _load(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata() or {})
        return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118 - not a mapping


def _check(path: Path, fields: dict[str, Any], digest: Callable[[], str]) -> None:
    """Remove the checksum from a file's own ``fields``; raise ``DataError`` if it is not the ``digest`` of the rest."""
    found = fields.pop(CHECKSUM, None)
    if found != digest():
        raise DataError(f"file {path} is damaged: its checksum is not that of its content.")


def _checksum_of_json(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def checksum_of_tensors(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> str:
    """Return the digest of contiguous CPU tensors: names, dtypes, shapes, metadata, then values in order of name."""
    names = sorted(tensors)
    described = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in names]
    digest = hashlib.sha256(json.dumps([described, dict(metadata)], sort_keys=True).encode())
    for name in names:
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0]}" if str(error) else type(error).__name__
