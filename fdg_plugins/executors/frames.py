# SPDX-License-Identifier: Apache-2.0
"""Frames for the pipes between FLARE's process and the training process: JSON and tensors, no pickle.

A frame is a prefix (magic, header length, payload length), a JSON header, and the tensors in the safetensors format,
in named groups: ``{"state": {"conv.weight": ...}}``. Tensors arrive bit for bit. Where both processes share memory, the
tensors are there instead, the payload is empty, and the header says where each of them is.
"""

import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load, save

from fdg_plugins.errors import FDGError
from fdg_plugins.executors.shared_memory import PlacementError, SharedMemory
from fdg_plugins.storage import UNREADABLE, write_all

MAGIC = b"FDG1"
PREFIX = struct.Struct(">4sIQ")
MAX_HEADER = 2**24
MAX_PAYLOAD = 2**34
READ_SIZE = 2**20

Groups = Mapping[str, Mapping[str, torch.Tensor]]


class FrameError(FDGError):
    """The bytes from a pipe are not a valid frame, or a frame exceeds the size limits."""


@dataclass(frozen=True)
class Frame:
    """A received message: a JSON object, and tensors in named groups."""

    header: dict[str, Any]
    groups: dict[str, dict[str, torch.Tensor]]


def pack(header: Mapping[str, Any], groups: Groups | None = None, memory: SharedMemory | None = None) -> list[bytes]:
    """Return the parts of a frame, to be written in order; NaN and infinities are allowed.

    ``memory``: the memory that takes the tensors; without it, or if it takes one of them not, they are in the frame.
    Raises ``FrameError`` if the header or the payload exceeds its size limit.
    """
    groups = groups or {}
    content: dict[str, Any] = {"header": dict(header)}
    content["tensors"] = {group: list(tensors) for group, tensors in groups.items()}
    tensors = [value for group in groups.values() for value in group.values()]
    _check_sizes(0, sum(value.nbytes for value in tensors))
    placed = memory.put(tensors) if tensors and memory is not None else None
    if placed is not None:
        content["shared"] = placed
    payload = b"" if placed is not None else save({str(at): _plain(value) for at, value in enumerate(tensors)})
    head = json.dumps(content).encode()
    _check_sizes(len(head), len(payload))
    return [PREFIX.pack(MAGIC, len(head), len(payload)) + head, payload]


class FrameReader:
    """Assembles frames from the chunks that a pipe delivers; ``memory`` is that of the tensors of its frames."""

    def __init__(self, memory: SharedMemory | None = None) -> None:
        self._memory = memory
        self._buffer = bytearray()

    def feed(self, content: bytes) -> None:
        """Take the next bytes from the pipe."""
        self._buffer += content

    def next_frame(self) -> Frame | None:
        """Return the next frame, or None if it is incomplete; raise ``FrameError`` if the bytes are not a frame."""
        given = min(len(self._buffer), len(MAGIC))
        if self._buffer[:given] != MAGIC[:given]:
            raise FrameError("what came through the pipe is not a frame; is something else writing to it?", public=True)
        if len(self._buffer) < PREFIX.size:
            return None
        _, header, payload = PREFIX.unpack_from(self._buffer)
        _check_sizes(header, payload)
        middle = PREFIX.size + header
        if len(self._buffer) < middle + payload:
            return None
        head, body = bytes(self._buffer[PREFIX.size : middle]), bytes(self._buffer[middle : middle + payload])
        frame = _parse(head, body, self._memory)
        del self._buffer[: middle + payload]
        return frame


def read_frame(descriptor: int, reader: FrameReader) -> Frame | None:
    """Wait for the next frame and return it; None if the pipe was closed, even in the middle of a frame."""
    while (frame := reader.next_frame()) is None:
        content = os.read(descriptor, READ_SIZE)
        if not content:
            return None
        reader.feed(content)
    return frame


def write_frame(descriptor: int, parts: Iterable[bytes]) -> None:
    """Write a frame to a pipe; block until all of it is written."""
    for part in parts:
        write_all(descriptor, part)


def _plain(value: torch.Tensor) -> torch.Tensor:
    """Return a contiguous CPU copy with its own memory; safetensors refuses tensors that share memory."""
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


def _check_sizes(header: int, payload: int) -> None:
    for name, size, limit in (("header", header, MAX_HEADER), ("payload", payload, MAX_PAYLOAD)):
        if size > limit:
            raise FrameError(f"a frame's {name} has {size} bytes, expected at most {limit}.", public=True)


def _parse(head: bytes, payload: bytes, memory: SharedMemory | None) -> Frame:
    try:
        content = json.loads(head)
        shares = isinstance(content, dict) and "shared" in content
        in_frame = {} if shares else load(payload)
    except UNREADABLE as error:
        raise FrameError(f"a frame cannot be read ({type(error).__name__}).", public=True) from error
    shared = content.pop("shared") if shares else []
    if not _is_head(content) or not isinstance(shared, list):
        raise FrameError("a frame's header is not of the expected form.", public=True)
    header, names = content["header"], content["tensors"]
    tensors = {str(at): value for at, value in enumerate(_shared_tensors(shared, memory))} or in_frame
    if tensors.keys() != {str(at) for at in range(sum(map(len, names.values())))}:
        raise FrameError("a frame's tensors are not those that its header names.", public=True)
    values = (tensors[str(at)] for at in range(len(tensors)))
    return Frame(header, {group: {name: next(values) for name in own} for group, own in names.items()})


def _shared_tensors(entries: list[Any], memory: SharedMemory | None) -> list[torch.Tensor]:
    """Return copies of the tensors that a frame has in shared memory."""
    if memory is None or not entries:
        return []
    try:
        return memory.take(entries)
    except PlacementError as error:
        raise FrameError(str(error), public=True) from error


def _is_head(content: Any) -> bool:
    """Return whether ``content`` has the form of a frame's JSON header, as :func:`pack` writes it."""
    if not (isinstance(content, dict) and content.keys() == {"header", "tensors"}):
        return False
    return isinstance(content["header"], dict) and _is_names(content["tensors"])


def _is_names(value: Any) -> bool:
    """Return whether ``value`` lists the names of tensors by group."""
    return isinstance(value, dict) and all(map(_is_text_list, value.values()))


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
