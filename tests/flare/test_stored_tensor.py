# SPDX-License-Identifier: Apache-2.0
"""Tensors in FLARE's files: read in parts as they were sent, and refused where a file is not sound."""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save

from fdg_plugins.core.stored import whole
from fdg_plugins.errors import DataError
from fdg_plugins.flare.stored_tensor import UNREADABLE, StoredTensor, open_reference, size_of

Offload = Callable[[Mapping[str, Any]], dict[str, Any]]
DTYPES = (torch.bfloat16, torch.float64, torch.bool, torch.int64)


def reference_to(path: Path, key: str = "T0") -> Any:
    """Return what FLARE's reference shows of a file."""
    return SimpleNamespace(file_path=str(path), key=key, materialize=lambda: pytest.fail("was loaded as a whole"))


def file_of(folder: Path, content: bytes) -> Any:
    path = folder / "chunk_0.safetensors"
    path.write_bytes(content)
    return reference_to(path)


def stored(reference: Any) -> StoredTensor:
    found = open_reference(reference)
    assert isinstance(found, StoredTensor)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (7, 5, 3)])
def test_type_and_shape_are_kept(offload: Offload, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (10 * torch.randn(shape, generator=torch.Generator().manual_seed(0))).to(dtype)
    found = stored(offload({"other": torch.ones(3), "w": tensor})["w"])
    assert (found.shape, found.dtype, found.nbytes) == (tensor.shape, dtype, tensor.nbytes)
    assert torch.equal(whole(found), tensor)
    flat = tensor.reshape(-1)
    for start in range(0, len(flat), 11):
        stop = min(start + 4, len(flat))
        assert torch.equal(found.read(start, stop), flat[start:stop])


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"short")])
def test_a_file_that_is_gone_or_cut_short_later_is_named(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    reference = file_of(tmp_path, save({"T0": torch.ones(100)}))
    found = stored(reference)
    damage(Path(reference.file_path))
    with pytest.raises(DataError):
        found.read(0, 100)


def with_header(header: Any, values: bytes = bytes(16)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values


ONE = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
HOSTILE = {
    "nothing": b"",
    "a header beyond the file": struct.pack("<Q", 2**62) + b"{}",
    "not JSON": with_header(b"{]"),
    "another name": with_header({"T1": ONE}),
    "more values than the file has": with_header({"T0": {**ONE, "shape": [8], "data_offsets": [0, 32]}}),
    "values that do not begin at the start": with_header({"T0": {**ONE, "shape": [2], "data_offsets": [8, 16]}}),
    "a shape that overflows": with_header({"T0": {**ONE, "shape": [2**62, 2**62]}}),
    "no type": with_header({"T0": {**ONE, "dtype": "object"}}),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=list(HOSTILE))
def test_a_file_that_is_not_sound_is_refused_and_has_no_size(tmp_path: Path, content: bytes) -> None:
    reference = file_of(tmp_path, content)
    with pytest.raises(UNREADABLE):
        open_reference(reference)
    assert size_of(reference) == 0
