# SPDX-License-Identifier: Apache-2.0
"""Tensors in FLARE's files: read as they were sent, refused where not sound, lost where an upload breaks off."""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.fobs.datum import Datum, DatumManager
from nvflare.fuel.utils.fobs.decomposers.via_downloader import EncKey, EncType, ViaDownloaderDecomposer
from safetensors.torch import save

from fdg_plugins.aggregators.contributions import read_contribution
from fdg_plugins.core.stored import whole
from fdg_plugins.errors import ContributionError, DataError
from fdg_plugins.flare.broken_uploads import LostTensor, are_lost, make_surviving
from fdg_plugins.flare.stored_tensor import UNREADABLE, StoredTensor, open_reference, size_of
from fdg_plugins.messages import META_SITE
from fdg_plugins.methods.fedavg import FedAvgAggregator

Offload = Callable[[Mapping[str, Any]], dict[str, Any]]
DTYPES = (torch.bfloat16, torch.float64, torch.bool, torch.int64)


def file_of(folder: Path, content: bytes) -> Any:
    """Return what FLARE's reference shows of a file."""
    path = folder / "chunk_0.safetensors"
    path.write_bytes(content)
    return SimpleNamespace(file_path=str(path), key="T0", materialize=lambda: pytest.fail("was loaded as a whole"))


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


REFERENCE = {EncKey.TYPE: EncType.REF, EncKey.DATA: "T0"}
AT_SERVER, AT_SITE = "server.job", "photo.job"


def decoding(
    receiver: str, error: str = "", kind: type[ViaDownloaderDecomposer] = TensorDecomposer
) -> tuple[ViaDownloaderDecomposer, DatumManager]:
    """Return a decomposer whose downloads end with ``error``, and the decoding of a message at ``receiver``."""
    decomposer = kind()
    decomposer.download = lambda **_: (error, None if error else {"T0": torch.ones(2)})
    make_surviving(decomposer)
    cell = SimpleNamespace(get_fqcn=lambda: receiver)
    return decomposer, DatumManager(fobs_ctx={fobs.FOBSContextKey.CELL: cell})


@pytest.mark.parametrize("kind", [TensorDecomposer, NumpyArrayDecomposer])
def test_broken_upload_is_lost(kind: type[ViaDownloaderDecomposer], caplog: pytest.LogCaptureFixture) -> None:
    forged = f"{AT_SITE}\n2026-01-01 00:00:00,000 - FederationController - INFO - run finished{' ' * 10**6}\x1b[2J"
    decomposer, manager = decoding(AT_SERVER, "timeout", kind)
    reference = json.dumps({"fqcn": forged, "ref_id": "1"})
    decomposer.process_datum(Datum.text_datum(reference, decomposer.get_download_dot()), manager)
    assert are_lost({"weight": decomposer.recompose(REFERENCE, manager), "bias": torch.ones(1)})
    told = [record.getMessage() for record in caplog.records]
    assert ["failed to download" in text for text in told] == [True, True], "FLARE's line, and ours"
    assert all(text.isprintable() and len(text) < 2000 for text in told)


@pytest.mark.parametrize(
    "data",
    [
        {EncKey.TYPE: EncType.NATIVE, EncKey.DATA: b"no safetensors"},
        {EncKey.TYPE: "other", EncKey.DATA: b"x"},
        REFERENCE,  # without a download
        [],
    ],
)
def test_content_that_is_no_tensor_is_lost_at_the_server_and_an_error_at_a_site(data: Any) -> None:
    decomposer, manager = decoding(AT_SERVER)
    assert isinstance(decomposer.recompose(data, manager), LostTensor)
    decomposer, manager = decoding(AT_SITE)
    with pytest.raises(Exception, match=r"."):
        decomposer.recompose(data, manager)


def test_an_update_with_lost_tensors_is_refused_with_the_reason() -> None:
    update = {"weight": LostTensor(), "bias": torch.ones(1)}
    model = FLModel(params_type=ParamsType.DIFF, params=update, meta={META_SITE: "photo"})
    with pytest.raises(ContributionError):
        read_contribution(model, None)


def test_uploads_survive_with_our_aggregators(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: dict[str, Any] = {}
    monkeypatch.setattr("nvflare.fuel.utils.fobs.fobs._decomposers", registry)
    monkeypatch.setattr("nvflare.fuel.utils.fobs.fobs._dot_handlers", {})
    fobs.register(NumpyArrayDecomposer)  # as FLARE does with its own encodings
    for _ in range(2):
        FedAvgAggregator().handle_event(EventType.START_RUN, FLContext())
    lost = [registry[name].recompose([], decoding(AT_SERVER)[1]) for name in ("torch.Tensor", "numpy.ndarray")]
    assert all(isinstance(one, LostTensor) for one in lost)
