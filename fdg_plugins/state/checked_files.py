# SPDX-License-Identifier: Apache-2.0
"""State files: tensors with a version, texts and a checksum in the metadata. They are private and replaced atomically.

The SHA-256 covers the content as it is read back, so content that passes the check is the content that was written. It
detects damage, not forgery: anyone who can write the file can recompute it.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open

from fdg_plugins.errors import DataError
from fdg_plugins.storage import UNREADABLE, save_tensors

CHECKSUM = "sha256"
VERSION = "version"


def save_checked_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Replace ``path`` with a safetensors file of ``tensors``, ``metadata`` (including ``version``) and a checksum."""
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
