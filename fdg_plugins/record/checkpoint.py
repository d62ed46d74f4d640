# SPDX-License-Identifier: Apache-2.0
"""The checkpoint from which a run resumes after its server died: one file, replaced after every round.

One safetensors file holds the model, the tensors of the method's exchange, and, as text, the record and the states of
aggregator and exchange. A crash can therefore never leave parts of two rounds. A checksum covers the whole content.
FLARE 2.9 has no snapshots of its own. The texts are tensors of bytes, since the header of a safetensors file, which has
its metadata, ends at 100 MB: the record of a run with many sites and rounds is larger.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import torch
from safetensors import SafetensorError, safe_open

from fdg_plugins.errors import DataError
from fdg_plugins.messages import CensusReply
from fdg_plugins.plugins.files import SUFFIX
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.state.checked_files import load_checked_tensors, save_checked_tensors
from fdg_plugins.storage import parse_json
from fdg_plugins.values import first_problem
from fdg_plugins.versions import is_plugin

CHECKPOINT_FILE = "checkpoint.safetensors"
SERVER = "server"  # FLARE's name of it, which no site can have
VERSION = "3"
OF_0_1_0 = "2"  # whose texts are metadata
MODEL, EXCHANGE, TEXT = "model/", "exchange/", "text/"
RECORD, AGGREGATOR, EXCHANGE_STATE = f"{TEXT}record", f"{TEXT}aggregator", f"{TEXT}exchange"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after its last complete round, the last one in ``record``."""

    record: RunRecord
    model: Mapping[str, torch.Tensor]
    aggregator: dict[str, Any]
    exchange: dict[str, Any] | None
    exchange_tensors: Mapping[str, torch.Tensor]

    def write(self, path: Path, record: str | None = None) -> None:
        """Replace the file at ``path`` with this checkpoint, atomically.

        ``record``: the text of the record, if the caller has it already.
        """
        tensors = {MODEL + name: value for name, value in self.model.items()}
        tensors.update({EXCHANGE + name: value for name, value in self.exchange_tensors.items()})
        texts = {
            RECORD: self.record.model_dump_json() if record is None else record,
            AGGREGATOR: json.dumps(self.aggregator),
            EXCHANGE_STATE: json.dumps(self.exchange),
        }
        tensors.update({name: _as_tensor(text) for name, text in texts.items()})
        save_checked_tensors(path, tensors, {"version": VERSION})


def has_checkpoint(state: Path | None) -> bool:
    """Return whether the server's folder of a run holds a checkpoint; None: the server keeps no state."""
    return state is not None and (state / CHECKPOINT_FILE).is_file()


def require_checkpoint(state: Path, run: str) -> None:
    """Raise ``DataError`` if the server's folder of ``run`` holds no checkpoint."""
    if not has_checkpoint(state):
        raise DataError(f"run {run} has no checkpoint at the server: it never finished a round, or it has ended.")


def read_checkpoint(path: Path, run: str) -> Checkpoint:
    """Return the checkpoint of ``run``; raise ``DataError`` if it does not exist or cannot be read."""
    require_checkpoint(path.parent, run)
    try:
        return _read(path, run)
    except KeyError as error:
        raise DataError(f"checkpoint of run {run} cannot be read: {error} is missing.") from error
    except (pydantic.ValidationError, DataError) as error:
        raise DataError(f"checkpoint of run {run} cannot be read: {_reason(error)}") from error


def complete_rounds(path: Path) -> int | None:
    """Return how many rounds the run of a checkpoint has completed; None if the file does not tell."""
    try:
        with safe_open(path, framework="pt") as file:
            return len(json.loads(_as_text(file.get_tensor(RECORD)))["rounds"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return None


def _reason(error: pydantic.ValidationError | DataError) -> str:
    return first_problem(error) if isinstance(error, pydantic.ValidationError) else str(error)


def _read(path: Path, run: str) -> Checkpoint:
    tensors, description = load_checked_tensors(path)
    version = description.get("version")
    if version == OF_0_1_0:
        texts = {TEXT + name: text.encode() for name, text in description.items()}
    elif version == VERSION:
        texts = {name: _as_text(value) for name, value in tensors.items() if name.startswith(TEXT)}
    else:
        raise DataError(f"version {version}, expected {VERSION} or, of 0.1.0, {OF_0_1_0}.")
    record = RunRecord.model_validate_json(texts[RECORD])
    if record.run != run:
        raise DataError(f"it is that of run {record.run}.")
    aggregator = parse_json(texts[AGGREGATOR], "state of the aggregator")
    exchange = parse_json(texts[EXCHANGE_STATE], "state of the exchange")
    return Checkpoint(record, _part(tensors, MODEL), aggregator, exchange, _part(tensors, EXCHANGE))


def _as_tensor(text: str) -> torch.Tensor:
    """Return text as its bytes, ``[L]``."""
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def _as_text(stored: torch.Tensor) -> bytes:
    return stored.numpy().tobytes()


def _part(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def check_continues(record: RunRecord, fresh: RunRecord, *, other_files: bool = False) -> None:
    """Raise ``DataError`` naming the first difference between a job (``fresh``) and the run it would resume.

    ``other_files``: plug-in files may differ, as the user says.
    """
    then, now = record.protocol.model_dump(), fresh.protocol.model_dump()
    pairs: list[tuple[str, Any, Any]] = [("version of fdg-plugins", _release(record), _release(fresh))]
    pairs += [("data", record.data, fresh.data)]  # before the settings, which may follow from them
    code = [name for name in record.versions if is_plugin(name) and not (other_files and name.endswith(SUFFIX))]
    pairs += [(name, record.versions[name], fresh.versions.get(name)) for name in code]
    pairs += [(f"setting {name}", then[name], now[name]) for name in then]
    pairs += [("method", record.method.model_dump(), fresh.method.model_dump())]
    pairs += [("sources", record.sources, fresh.sources), ("held-out sites", record.held_out, fresh.held_out)]
    pairs += [("classes", record.classes, fresh.classes)]
    # Undoing the first step goes back to them.
    pairs += [("source of the initial weights", _origin(record), _origin(fresh))]
    pairs += [
        (f"split of site {site}", reply.split_hash, fresh.census[site].split_hash)
        for site, reply in record.census.items()
        if site in fresh.census
    ]
    pairs += [
        (f"precision of site {site}", reply.precision, fresh.census[site].precision)
        for site, reply in record.census.items()
        if site in fresh.census and reply.precision is not None
    ]
    for what, before, after in pairs:
        if before != after:
            raise DataError(f"run {record.run} cannot go on: its {what} was {before}, but is now {after}.")
    _check_sites_state(record, fresh)


def _origin(record: RunRecord) -> str:
    weights = record.initial_weights
    return weights.label if weights.sha256 is None else f"{weights.label} (SHA-256 {weights.sha256})"


def other_arithmetic(record: RunRecord, fresh: RunRecord) -> dict[str, dict[str, str]]:
    """Return what a job (``fresh``) computes with other than the run did that it resumes: packages, devices.

    By participant, the server's as ``server``; without those that are as they were.
    """
    pairs = [(SERVER, record.versions, fresh.versions)]
    pairs += [
        (site, _arithmetic(record.census[site]), _arithmetic(reply))
        for site, reply in fresh.census.items()
        if site in record.census
    ]
    found = {
        participant: {name: now[name] for name in sorted(then) if now.get(name, then[name]) != then[name]}
        for participant, then, now in pairs
    }
    return {participant: changed for participant, changed in found.items() if changed}


def _arithmetic(reply: CensusReply) -> dict[str, str]:
    """Return on what the bits of a site's arithmetic depend, by name."""
    return {**reply.versions, "device": reply.device, "compiled": "yes" if reply.compiled else "no"}


def _check_sites_state(record: RunRecord, fresh: RunRecord) -> None:
    """Raise ``DataError`` naming a site that has lost what it said it kept when it last trained.

    Sites that have learnt that the run has finished have removed it.
    """
    if record.status == "finished":
        return
    trained = {site: local for finished in record.rounds for site, local in finished.local.items()}
    for site in sorted((trained.keys() & fresh.census.keys()) - record.left_out.keys()):
        if trained[site].keeps_state and not fresh.census[site].keeps_state:
            raise DataError(
                f"run {record.run} cannot go on: site {site} has lost its state of the run, from which it would go on."
            )


def _release(record: RunRecord) -> str:
    """Return the first two numbers of the package's version: between them, defaults and rounding may change."""
    return ".".join(record.versions.get("fdg-plugins", "unknown").split(".")[:2])
