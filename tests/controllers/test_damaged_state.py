# SPDX-License-Identifier: Apache-2.0
"""The four files of a participant's state, garbled in hundreds of ways: each is refused, or read as it was written."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from fdg_plugins.errors import DataError
from fdg_plugins.filters.gap import OwnModels
from fdg_plugins.privacy.ledger import Ledger, Limits
from fdg_plugins.record.checkpoint import Checkpoint, read_checkpoint
from fdg_plugins.state.checked_files import (
    load_checked_tensors,
    read_checked_json,
    save_checked_tensors,
    write_checked_json,
)
from fdg_plugins.state.site_memory import Kept, read_memory, write_kept
from fdg_plugins.storage import save_tensors
from tests.controllers.federation_stubs import run_record

SEED = 7
GARBLINGS = 300
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


def gap_memory(folder: Path) -> StateFile:
    path = folder / "fdg_gap.json"
    for number, loss in ((1, 0.5), (2, 0.25)):
        OwnModels(path).keep(number, {"loss": loss, "accuracy": 0.125 * number})
    return StateFile(path, lambda: [OwnModels(path).before(number) for number in (0, 2, 3, 4)])


def site_memory(folder: Path) -> StateFile:
    write_kept(folder, 3, Kept(TENSORS))
    return StateFile(folder / "fdg_memory_3.safetensors", lambda: comparable(read_memory(folder, 4)))


def checkpoint(folder: Path) -> StateFile:
    path = folder / "checkpoint.safetensors"
    record = run_record()
    record.run = RUN
    Checkpoint(record, TENSORS, {"gaps": {"photo": 0.5}}, {"seen": 3}, {"means": torch.ones(2, 2)}).write(path)

    def read() -> Any:
        found = read_checkpoint(path, RUN)
        tensors = comparable(found.model), comparable(found.exchange_tensors)
        return found.record.model_dump_json(), tensors, found.aggregator, found.exchange

    return StateFile(path, read)


def comparable(tensors: Any) -> dict[str, tuple[str, list[int], bytes]]:
    return {
        name: (str(value.dtype), list(value.shape), value.reshape(-1).view(torch.uint8).numpy().tobytes())
        for name, value in tensors.items()
    }


FILES = {"ledger": ledger, "gap memory": gap_memory, "site memory": site_memory, "checkpoint": checkpoint}


def flip(content: bytearray, generator: random.Random) -> None:
    for _ in range(generator.choice([1, 1, 1, 8])):
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)


def truncate(content: bytearray, generator: random.Random) -> None:
    del content[generator.randrange(len(content)) :]


def swap(content: bytearray, generator: random.Random) -> None:
    length = generator.randrange(1, len(content) // 4)
    first = generator.randrange(len(content) // 2 - length)
    second = generator.randrange(len(content) // 2, len(content) - length)
    content[first : first + length], content[second : second + length] = (
        content[second : second + length],
        content[first : first + length],
    )


def append(content: bytearray, generator: random.Random) -> None:
    content += generator.randbytes(generator.randrange(1, 64))


def overwrite(content: bytearray, generator: random.Random) -> None:
    start = generator.randrange(len(content))
    content[start : start + 16] = generator.choice([bytes(16), b"9" * 16, generator.randbytes(16)])


WAYS = (flip, flip, truncate, swap, append, overwrite)


def refusal_of(file: StateFile, content: bytes, written: Any) -> str | None:
    """Return why ``content`` is refused in place of the file; None if it is read as what was written."""
    file.path.write_bytes(content)
    try:
        found = file.read()
    except DataError as error:
        return str(error)
    assert found == written
    return None


@pytest.mark.parametrize("kind", FILES)
def test_a_garbled_file_is_refused_or_read_as_it_was_written(kind: str, tmp_path: Path) -> None:
    file = FILES[kind](tmp_path)
    intact, written = file.path.read_bytes(), file.read()
    generator = random.Random(SEED)
    refusals = []
    for number in range(GARBLINGS):
        content = bytearray(intact)
        WAYS[number % len(WAYS)](content, generator)
        refusals.append(refusal_of(file, bytes(content), written))
    reasons = [refusal for refusal in refusals if refusal is not None]
    assert len(reasons) > 0.97 * GARBLINGS
    assert not any("\n" in reason for reason in reasons)
    assert all(str(file.path) in reason for reason in reasons if kind != "checkpoint")
    assert all(reason.startswith(f"checkpoint of run {RUN}") for reason in reasons if kind == "checkpoint")


@pytest.mark.parametrize("kind", FILES)
def test_a_flipped_bit_is_found_but_where_it_changes_nothing(kind: str, tmp_path: Path) -> None:
    """Such as the case of the exponent of a number in JSON: the file is then read as it was written."""
    file = FILES[kind](tmp_path)
    intact, written = file.path.read_bytes(), file.read()
    bits = random.Random(SEED).sample(range(8 * len(intact)), 400)
    refusals = []
    for bit in bits:
        content = bytearray(intact)
        content[bit // 8] ^= 1 << bit % 8
        refusals.append(refusal_of(file, bytes(content), written))
    assert refusals.count(None) < 4


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"null", b"[" * 30_000, b'{"a":' * 30_000, b"\xff" * 100, b"\x00" * 100]
)
def test_a_file_of_something_else_is_refused_in_one_sentence(kind: str, content: bytes, tmp_path: Path) -> None:
    file = FILES[kind](tmp_path)
    file.path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        file.read()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("kind", FILES)
def test_a_folder_in_the_place_of_a_file_is_refused(kind: str, tmp_path: Path) -> None:
    file = FILES[kind](tmp_path)
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(DataError):
        file.read()


# --- what a checksum covers may still be wrong ---


@pytest.mark.parametrize(
    "rounds", ['{"²": {}}', '{"-1": {}}', '{"x": {}}', '{"1": 2}', '{"1": {"loss": "much"}}', "[]", "1"]
)
def test_a_gap_memory_with_other_values_is_refused(rounds: str, tmp_path: Path) -> None:
    path = tmp_path / "fdg_gap.json"
    write_checked_json(path, {"version": 3, "rounds": json.loads(rounds)})
    with pytest.raises(DataError, match=r"file .*fdg_gap\.json is damaged: "):
        OwnModels(path).before(5)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    file = checkpoint(tmp_path)
    with pytest.raises(DataError, match=f"checkpoint of run other cannot be read: it is that of run {RUN}"):
        read_checkpoint(file.path, "other")


# --- the checksum itself ---


def test_a_checksum_that_was_taken_off_is_missed(tmp_path: Path) -> None:
    write_checked_json(tmp_path / "a.json", {"version": 2, "value": 1})
    assert read_checked_json(tmp_path / "a.json") == {"version": 2, "value": 1}
    (tmp_path / "a.json").write_text('{"version": 2, "value": 1}')
    with pytest.raises(DataError, match=r"a\.json is damaged"):
        read_checked_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    "other",
    [
        {"a": TENSORS["a"] * 2, "b": TENSORS["a"]},  # each under the other's name
        {"a": TENSORS["a"].reshape(3, 2), "b": TENSORS["a"] * 2},  # another shape
        {"a": TENSORS["a"].view(torch.int32), "b": TENSORS["a"] * 2},  # another type of the same bytes
        {"a": TENSORS["a"]},  # one is missing
    ],
)
def test_names_shapes_and_types_are_part_of_the_checksum(other: dict[str, torch.Tensor], tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_checked_tensors(path, {"a": TENSORS["a"], "b": TENSORS["a"] * 2}, {"version": "2"})
    _, texts = load_checked_tensors(path)
    with_checksum = safetensors_texts(path)
    assert set(with_checksum) - set(texts) == {"sha256"}
    save_tensors(path, other, with_checksum)
    with pytest.raises(DataError, match="its checksum is not that of its content"):
        load_checked_tensors(path)


def safetensors_texts(path: Path) -> dict[str, str]:
    content = path.read_bytes()
    header: dict[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(header["__metadata__"])
