# SPDX-License-Identifier: Apache-2.0
"""Memory of two processes: tensors come out as they were put in, and a message cannot reach beyond the memory."""

import json
import mmap
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fdg_plugins.executors.frames import MAGIC, PREFIX, Frame, FrameError, FrameReader, pack
from fdg_plugins.executors.shared_memory import PlacementError, SharedMemory


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    memory = SharedMemory.create()
    if memory is None:
        pytest.skip("this system has no files in memory")
    yield memory
    memory.close()


def tensors() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(4, 3, 5, 5, generator=generator)
    return [
        *(values, values.to(torch.bfloat16), values.double(), torch.complex(values, values)),
        *(values.contiguous(memory_format=torch.channels_last), values[:, 1]),
        *(torch.tensor(7), torch.tensor([True, False]), torch.zeros(0, 3), torch.tensor([float("nan"), -0.0])),
        values.clone().requires_grad_(),
    ]


def through(parts: list[bytes], memory: SharedMemory) -> Frame:
    """Return the frame as the process at the other end reads it, which has a view of the memory of its own."""
    reader = FrameReader(SharedMemory(memory.descriptor))
    reader.feed(b"".join(parts))
    frame = reader.next_frame()
    assert frame is not None
    return frame


def test_tensors_arrive_bit_for_bit_and_are_the_receivers_own(memory: SharedMemory) -> None:
    sent = {str(at): value for at, value in enumerate(tensors())}
    parts = pack({"number": 1}, {"state": sent, "received": {}}, memory)
    assert sum(map(len, parts)) < 4096, "the tensors are not in the pipe"
    frame = through(parts, memory)
    pack({}, {"state": {name: torch.zeros_like(value) for name, value in sent.items()}}, memory)
    assert frame.header == {"number": 1}
    assert frame.groups["received"] == {}
    for name, value in frame.groups["state"].items():
        assert (value.dtype, value.shape) == (sent[name].dtype, sent[name].shape)
        assert (value.is_contiguous(), value.requires_grad) == (True, False)
        torch.testing.assert_close(value, sent[name].detach(), rtol=0, atol=0, equal_nan=True)


def test_the_memory_grows_with_the_messages_at_both_ends(memory: SharedMemory) -> None:
    other = SharedMemory(memory.descriptor)
    for count in (10, 100_000, 1_000):
        value = torch.arange(count, dtype=torch.float32)
        placed = memory.put([value])
        assert placed is not None
        assert torch.equal(other.take(json.loads(json.dumps(placed)))[0], value)


def test_a_tensor_that_the_memory_does_not_take_travels_in_the_frame(memory: SharedMemory) -> None:
    sent = torch.randn(3).to(torch.float8_e4m3fn)
    frame = through(pack({}, {"state": {"w": sent}}, memory), memory)
    assert torch.equal(frame.groups["state"]["w"].float(), sent.float())


def test_neither_end_can_take_pages_from_the_other(memory: SharedMemory) -> None:
    memory.put([torch.zeros(mmap.PAGESIZE)])
    with pytest.raises(PermissionError):
        os.ftruncate(memory.descriptor, 0)


@pytest.mark.parametrize(
    "entry",
    [
        ["float32", [1 << 40], 0],
        ["float32", [4], 1 << 20],
        ["float32", [-1], 0],
        ["float32", [4], -64],
        ["float32", [4], 3],
        ["float32", ["4"], 0],
        ["object", [4], 0],
        ["float32", 4, 0],
        "float32",
        None,
    ],
)
def test_a_place_outside_the_memory_is_refused_in_one_sentence(memory: SharedMemory, entry: Any) -> None:
    memory.put([torch.zeros(4)])
    with pytest.raises(PlacementError, match=r"^[^.]*memory[^.]*\.$"):
        memory.take([entry])
    head = json.dumps({"header": {}, "tensors": {"state": ["w"]}, "shared": [entry]}).encode()
    with pytest.raises(FrameError, match=r"^[^.]*memory[^.]*\.$"):
        through([PREFIX.pack(MAGIC, len(head), 0) + head], memory)
