# SPDX-License-Identifier: Apache-2.0
"""What version 0.1.0 wrote is read: record, ledger and audit; a run that it began is not continued."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.audit.file import append_line, audit_entries, read_audit
from fdg_plugins.core.accounting import gaussian_epsilon
from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis.runs import find_runs
from fdg_plugins.privacy.ledger import Ledger, Limits
from fdg_plugins.record.checkpoint import read_checkpoint
from fdg_plugins.record.run_record import RunRecord

OF_0_1_0 = Path(__file__).parents[1] / "data" / "of_0_1_0"


def contains(whole: Any, part: Any) -> bool:
    """Return whether every field of the JSON value ``part`` is in ``whole``, with the same value."""
    if isinstance(part, dict):
        return all(name in whole and contains(whole[name], value) for name, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)


def test_a_record_is_read_and_nothing_of_it_is_lost() -> None:
    text = (OF_0_1_0 / "results.json").read_text(encoding="utf-8")
    record = RunRecord.model_validate_json(text)
    assert record.versions["fdg-plugins"] == "0.1.0"
    assert record.protocol.batch_norm == "average", "what 0.1.0 did"
    assert contains(json.loads(record.model_dump_json()), json.loads(text))
    (run,) = find_runs([OF_0_1_0 / "results.json"]).runs
    assert run.record == record


def test_a_run_that_it_began_is_not_continued_and_the_sentence_says_why(tmp_path: Path) -> None:
    path = Path(shutil.copy(OF_0_1_0 / "checkpoint.safetensors", tmp_path))
    with pytest.raises(DataError, match="checkpoint of run job cannot be read: its version is 2, expected 3"):
        read_checkpoint(path, "job")


def test_the_privacy_ledger_counts_and_goes_on(tmp_path: Path) -> None:
    path = Path(shutil.copy(OF_0_1_0 / "ledger.json", tmp_path))
    limits = Limits(clip_norm=1.0, noise_multiplier=8.0, max_epsilon=3.0, delta=1e-5)
    assert Ledger(path, "photo").spend("next", 0, limits) == gaussian_epsilon([8.0] * 3, 1e-5)
    assert [one.round for one in Ledger(path, "photo").read().releases] == [0, 1, 0]


def test_the_audit_is_read_and_continued_in_the_same_file(tmp_path: Path) -> None:
    path = Path(shutil.copy(OF_0_1_0 / "fdg_audit.jsonl", tmp_path))
    lines = read_audit(path)
    assert len(lines) == len(path.read_text(encoding="utf-8").splitlines()) == 4
    append_line(path, lines[-1])
    assert list(audit_entries(path)) == [*lines, lines[-1]]
