# SPDX-License-Identifier: Apache-2.0
"""The checkpoint from which a run resumes after its server died: one file, replaced after every round.

One safetensors file holds the model, the tensors of the method's exchange, and, as text, the record and the state of
the aggregator, so a crash cannot leave parts of two rounds. A checksum covers the whole content. The texts are tensors
of bytes: the header of a safetensors file ends at 100 MB, and the record of a long run is larger.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fdg_plugins.errors import DataError
from fdg_plugins.plugins.files import SUFFIX
from fdg_plugins.plugins.versions import is_plugin
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.storage import load_checked_tensors, save_checked_tensors

CHECKPOINT_FILE = "checkpoint.safetensors"
SERVER = "server"  # FLARE's name of it, which no site can have
VERSION = "3"
MODEL, EXCHANGE = "model/", "exchange/"
RECORD, AGGREGATOR = "text/record", "text/aggregator"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after its last complete round, the last one in ``record``."""

    record: RunRecord
    model: Mapping[str, torch.Tensor]
    aggregator: dict[str, Any]
    exchange: Mapping[str, torch.Tensor]

    def write(self, path: Path, record: str | None = None) -> None:
        """Replace the file at ``path`` with this checkpoint, atomically; ``record``: the record as JSON, if known."""
        tensors = {MODEL + name: value for name, value in self.model.items()}
        tensors |= {EXCHANGE + name: value for name, value in self.exchange.items()}
        texts = {RECORD: record or self.record.model_dump_json(), AGGREGATOR: json.dumps(self.aggregator)}
        for name, text in texts.items():
            tensors[name] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        save_checked_tensors(path, tensors, {"version": VERSION})


def has_checkpoint(state: Path) -> bool:
    """Return whether the server's folder of a run holds a checkpoint."""
    return (state / CHECKPOINT_FILE).is_file()


def require_checkpoint(state: Path, run: str) -> None:
    """Raise ``DataError`` if the server's folder of ``run`` holds no checkpoint."""
    if not has_checkpoint(state):
        raise DataError(f"run {run} has no checkpoint at the server: it never finished a round, or it has ended.")


def read_checkpoint(path: Path, run: str) -> Checkpoint:
    """Return the checkpoint of ``run``."""
    require_checkpoint(path.parent, run)
    try:
        tensors, description = load_checked_tensors(path)
        if (version := description.get("version")) != VERSION:
            raise DataError(f"its version is {version}, expected {VERSION}: begin the run anew.")
        texts = {name: json.loads(tensors.pop(name).numpy().tobytes()) for name in (RECORD, AGGREGATOR)}
        record = RunRecord.read(texts[RECORD], "its record", DataError)
        if record.run != run:
            raise DataError(f"it is that of run {record.run}.")
    except DataError as error:
        raise DataError(f"checkpoint of run {run} cannot be read: {error}") from error
    model = {name.removeprefix(MODEL): one for name, one in tensors.items() if name.startswith(MODEL)}
    learned = {name.removeprefix(EXCHANGE): one for name, one in tensors.items() if name.startswith(EXCHANGE)}
    return Checkpoint(record, model, texts[AGGREGATOR], learned)


def check_continues(record: RunRecord, fresh: RunRecord, *, other_files: bool = False) -> None:
    """Raise ``DataError`` naming the first difference between a job (``fresh``) and the run it would resume.

    ``other_files``: plug-in files may differ, as the user says.
    """
    for what, before, after in _pairs(record, fresh, other_files):
        if before != after:
            raise DataError(f"run {record.run} cannot go on: its {what} was {before}, but is now {after}.")


def _pairs(record: RunRecord, fresh: RunRecord, other_files: bool) -> Iterator[tuple[str, Any, Any]]:
    then, now = record.protocol.model_dump(), fresh.protocol.model_dump()
    yield "version of fdg-plugins", _release(record), _release(fresh)
    yield "data", record.data, fresh.data  # before the settings, which may follow from them
    for name in record.versions:
        if is_plugin(name) and not (other_files and name.endswith(SUFFIX)):
            yield name, record.versions[name], fresh.versions.get(name)
    yield from ((f"setting {name}", then[name], now[name]) for name in then)
    for name in ("method", "sources", "held_out", "classes"):
        yield name, getattr(record, name), getattr(fresh, name)
    weights, own = record.initial_weights, fresh.initial_weights
    yield "source of the initial weights", (weights.label, weights.sha256), (own.label, own.sha256)
    for site in sorted(record.census.keys() & fresh.census.keys()):
        before, after = record.census[site], fresh.census[site]
        yield f"split of site {site}", before.split_hash, after.split_hash
        if before.precision is not None:
            yield f"precision of site {site}", before.precision, after.precision
    if record.status == "finished":  # sites that have learnt so have removed what they kept
        return
    trained = {site: local for finished in record.rounds for site, local in finished.local.items()}
    for site in sorted((trained.keys() & fresh.census.keys()) - record.left_out.keys()):
        if trained[site].keeps_state and not fresh.census[site].keeps_state:
            yield f"state of site {site}", "kept", "lost"


def _release(record: RunRecord) -> str:
    """Return the first two numbers of the package's version: between them, defaults and rounding may change."""
    return ".".join(record.versions.get("fdg-plugins", "unknown").split(".")[:2])


def other_arithmetic(record: RunRecord, fresh: RunRecord) -> dict[str, dict[str, str]]:
    """Return what a job (``fresh``) computes with other than the run did that it resumes: packages, devices.

    By participant, the server's as ``server``; without those that are as they were.
    """
    found: dict[str, dict[str, str]] = {}
    now = _arithmetic(fresh)
    for participant, then in _arithmetic(record).items():
        own = now.get(participant, then)
        if changed := {name: own[name] for name in sorted(then) if own.get(name, then[name]) != then[name]}:
            found[participant] = changed
    return found


def _arithmetic(record: RunRecord) -> dict[str, dict[str, str]]:
    found = {SERVER: record.versions}
    for site, reply in record.census.items():
        own = {"device": reply.device, "compiled": "yes" if reply.compiled else "no", "threads": str(reply.threads)}
        found[site] = {**reply.versions, **own}
    return found
