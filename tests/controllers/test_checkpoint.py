# SPDX-License-Identifier: Apache-2.0
"""The server's checkpoint, however long the record in it has become."""

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save

from fdg_plugins.errors import DataError
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE, Checkpoint, complete_rounds, read_checkpoint
from fdg_plugins.storage import save_tensors
from tests.controllers.federation_stubs import run_record

HEADER = 100_000_000  # bytes that a safetensors file's names and metadata may have


def test_a_record_longer_than_the_header_of_a_file_may_be_is_kept_and_read(tmp_path: Path) -> None:
    record, model, path = run_record(), {"weight": torch.ones(2)}, tmp_path / CHECKPOINT_FILE
    long = record.model_dump_json() + " " * HEADER
    with pytest.raises(SafetensorError, match="header too large"):
        save(model, {"record": long})
    Checkpoint(record, model, {"step": 1}, {"seen": 2}, {}).write(path, long)
    found = read_checkpoint(path, record.run)
    assert found.record == record
    assert (found.aggregator, found.exchange) == ({"step": 1}, {"seen": 2})
    assert list(found.model) == ["weight"]
    assert complete_rounds(path) == len(record.rounds)


def test_what_a_header_cannot_hold_is_refused_by_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"one\.safetensors cannot be written: .*header too large"):
        save_tensors(tmp_path / "one.safetensors", {}, {"text": " " * HEADER})
    assert not list(tmp_path.iterdir())
