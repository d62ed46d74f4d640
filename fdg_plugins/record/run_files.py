# SPDX-License-Identifier: Apache-2.0
"""Names of the files that a run writes to its folder, declared once for writers and readers, and the folder's own."""

import itertools
from contextlib import suppress
from datetime import datetime
from pathlib import Path

RESULTS_FILE = "results.json"
COMPRESSED_RESULTS_FILE = "results.json.gz"  # what gzip makes of it: read, never written
LAST_FILE = "global_model.safetensors"
SELECTED_FILE = "global_model_selected.safetensors"
LOCAL_FOLDER = "local_models"  # written if the protocol sets keep_local_models
EVENTS_FOLDER = "tb_events"  # TensorBoard events; FLARE's name
SIMULATOR_FOLDER = "server/simulate_job"  # within a simulator's workspace; FLARE's name for the simulated job
RUNS = Path("runs")  # below the folder where a run is started


def make_run_folder(parent: Path, run: str, now: datetime) -> Path:
    """Make a folder below ``parent`` that is called after the run and the time, and return it.

    Another run that has begun in the same second keeps its folder: this one gets a number. Raises ``OSError`` if no
    folder can be made.
    """
    folder = first = parent / f"{run}-{now:%Y%m%d-%H%M%S}"
    numbered = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
    while True:
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
        folder = next(numbered)
