# SPDX-License-Identifier: Apache-2.0
"""What a run has left in its folder: its record, and models that are compared bit for bit."""

from pathlib import Path

from fdg_plugins.record.run_files import LAST_FILE, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.storage import load_tensors
from fdg_plugins.testing.inputs import same_bits


def record_in(folder: Path) -> RunRecord:
    """Return the record in a run's folder, or else in the only folder below it that has one."""
    file = folder / RESULTS_FILE
    if not file.exists():
        (file,) = folder.rglob(RESULTS_FILE)
    return RunRecord.model_validate_json(file.read_bytes())


def same_models(one: Path, other: Path, *files: str) -> bool:
    """Return whether two folders hold the same bits in files of models, default: the last and the selected one."""
    pairs = ((load_tensors(folder / name) for folder in (one, other)) for name in files or (LAST_FILE, SELECTED_FILE))
    return all(same_bits(*pair) for pair in pairs)
