# SPDX-License-Identifier: Apache-2.0
"""The files of a participant's state, garbled in hundreds of ways: each is refused, or read as it was written."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from fdg_plugins.errors import DataError
from fdg_plugins.privacy.ledger import Ledger, Limits
from fdg_plugins.record.checkpoint import Checkpoint, read_checkpoint
from fdg_plugins.state.site_memory import Kept, read_kept, write_kept
from tests.controllers.federation_stubs import run_record

RUN = "3379af42"
LIMITS = Limits(clip_norm=1.0, noise_multiplier=8.0, max_epsilon=50.0, delta=1e-5)
TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1.0, -0.5]).bfloat16(), "n": torch.tensor(7)}


class StateFile(NamedTuple):
    """A file of the state: where it lies, and how its whole content is read, as something that can be compared."""

    path: Path
    read: Callable[[], Any]


def ledger(folder: Path) -> StateFile:
    path = folder / "ledger.json"
    for number in range(4):
        Ledger(path, "photo").spend("job", number, LIMITS)
    return StateFile(path, lambda: Ledger(path, "photo").read())


def site_memory(folder: Path) -> StateFile:
    write_kept(folder, 3, Kept(TENSORS, momentum=TENSORS))
    return StateFile(folder / "fdg_trained_3.safetensors", lambda: [comparable(one) for one in read_kept(folder, 4)])


def checkpoint(folder: Path) -> StateFile:
    path = folder / "checkpoint.safetensors"
    record = run_record()
    record.run = RUN
    Checkpoint(record, TENSORS, {"gaps": {"photo": 0.5}}, {"means": torch.ones(2, 2)}).write(path)

    def read() -> Any:
        found = read_checkpoint(path, RUN)
        tensors = comparable(found.model), comparable(found.exchange)
        return found.record.model_dump_json(), tensors, found.aggregator

    return StateFile(path, read)


def comparable(tensors: Any) -> dict[str, tuple[str, list[int], bytes]]:
    return {
        name: (str(value.dtype), list(value.shape), value.reshape(-1).view(torch.uint8).numpy().tobytes())
        for name, value in tensors.items()
    }


FILES = {"ledger": ledger, "site memory": site_memory, "checkpoint": checkpoint}


def garble(content: bytearray, way: int, generator: random.Random) -> None:
    """Flip a bit, cut the content short, add to it, or write over a part of it."""
    start = generator.randrange(len(content))
    if way == 0:
        content[start] ^= 1 << generator.randrange(8)
    elif way == 1:
        del content[start:]
    elif way == 2:
        content += generator.randbytes(generator.randrange(1, 64))
    else:
        content[start : start + 16] = generator.choice([bytes(16), b"9" * 16, generator.randbytes(16)])


@pytest.mark.parametrize("kind", FILES)
def test_a_garbled_file_is_refused_or_read_as_it_was_written(kind: str, tmp_path: Path) -> None:
    """A bit may change nothing, such as the case of the exponent of a number in JSON."""
    file = FILES[kind](tmp_path)
    intact, written = file.path.read_bytes(), file.read()
    generator, refused = random.Random(7), list[str]()
    for number in range(300):
        content = bytearray(intact)
        garble(content, number % 4, generator)
        file.path.write_bytes(content)
        try:
            assert file.read() == written
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > 290
    named = str(file.path) if kind != "checkpoint" else f"checkpoint of run {RUN}"
    for other in (b"", b"{}", b"[" * 30_000, b"\xff" * 100):
        file.path.write_bytes(other)
        with pytest.raises(DataError) as caught:
            file.read()
        refused.append(str(caught.value))
    assert all(named in text and "\n" not in text and len(text) < 500 for text in refused)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    file = checkpoint(tmp_path)
    with pytest.raises(DataError):
        read_checkpoint(file.path, "other")
