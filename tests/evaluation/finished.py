# SPDX-License-Identifier: Apache-2.0
"""Folders of finished runs whose models nobody has trained: their parameters are drawn."""

from pathlib import Path
from typing import Any

from fdg_plugins.data import PACS
from fdg_plugins.models import build_model
from fdg_plugins.record.run_files import RESULTS_FILE, SELECTED_FILE
from fdg_plugins.storage import save_tensors, write_json
from tests.controllers.federation_stubs import run_record

SIZE = 16


def finished_run(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """Write the folder of a run on PACS that held out ``sketch`` and trained on ``cartoon`` and ``photo``."""
    record = run_record(image_size=SIZE, seed=seed)
    record = record.model_copy(update={"status": "finished", "classes": PACS.classes, **changes})
    write_json(folder / RESULTS_FILE, record.model_dump(mode="json"))
    save_tensors(folder / SELECTED_FILE, build_model("convnet", len(record.classes), seed=seed).state_dict())
    return folder
