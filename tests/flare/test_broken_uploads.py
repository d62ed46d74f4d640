# SPDX-License-Identifier: Apache-2.0
"""An upload that breaks off reaches the workflow as lost tensors; a site still fails on what the server sends it."""

import json
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

from fdg_plugins.aggregators.contributions import read_contribution
from fdg_plugins.errors import ContributionError
from fdg_plugins.flare.broken_uploads import LostTensor, are_lost, make_surviving
from fdg_plugins.messages import META_SITE
from fdg_plugins.methods.fedavg import FedAvgAggregator

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
