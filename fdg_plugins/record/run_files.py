# SPDX-License-Identifier: Apache-2.0
"""Names of the files that a run writes to its folder, declared once for writers and readers, and the folder's own."""

import itertools
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from fdg_plugins.flare.trackers import MLFLOW_FILE, WANDB_FOLDER

RESULTS_FILE = "results.json"
COMPRESSED_RESULTS_FILE = "results.json.gz"  # what gzip makes of it: read, never written
LAST_FILE = "global_model.safetensors"
EVALUATION_FILE = "evaluation.json"  # of finished models
SELECTED_FILE = "global_model_selected.safetensors"
LOCAL_FOLDER = "local_models"  # written if the protocol sets keep_local_models
MODELS_FOLDER = "app_server", "models"  # of a job, with a folder for each model that it evaluates
STATE_FILE = "server_state.json"
TENSORS_FILE = "server_state.safetensors"
EVENTS_FOLDER = "tb_events"  # TensorBoard events; FLARE's name
SIMULATOR_FOLDER = "server/simulate_job"  # within a simulator's workspace; FLARE's name for the simulated job
RUNS = Path("runs")  # below the folder where a run is started
TRACKED = (EVENTS_FOLDER, MLFLOW_FILE, WANDB_FOLDER)
"""What cannot be computed again from a checkpoint: the metrics of the rounds before it."""
KEPT = (LAST_FILE, SELECTED_FILE, LOCAL_FOLDER, STATE_FILE, TENSORS_FILE, *TRACKED, RESULTS_FILE)
"""What a run leaves in the folder of its job on the server. The record, which may say that it has finished, is last."""


def make_run_folder(parent: Path, run: str, now: datetime) -> Path:
    """Make a folder below ``parent`` that is called after the run and the time, and return it.

    Another run that has begun in the same second keeps its folder: this one gets a number.
    """
    first = parent / f"{run}-{now:%Y%m%d-%H%M%S}"
    for number in itertools.count(1):
        folder = first if number == 1 else first.with_name(f"{first.name}-{number}")
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    return folder


def gather(left: Path, folder: Path, names: Iterable[str]) -> None:
    """Move those of ``names`` that a part of a run has left in ``left`` to ``folder``; raise ``OSError`` if one cannot.

    A run that is resumed has several parts. A file replaces the earlier one, and the content of a folder is added to
    that of the earlier one. MLflow's database gets a number (``mlflow-2.db``) beside earlier ones, since each has the
    rounds of its part only.
    """
    for name in names:
        target = folder / name
        if name == MLFLOW_FILE:
            numbered = (target.with_stem(f"{target.stem}-{number}") for number in itertools.count(2))
            target = next(path for path in itertools.chain([target], numbered) if not path.exists())
        for end in ("", "-journal"):  # from which SQLite mends a database whose process was killed
            if (source := left / f"{name}{end}").exists():
                _move(source, target.with_name(target.name + end))


def _move(source: Path, target: Path) -> None:
    if source.is_symlink() or not (source.is_dir() and target.is_dir()):
        source.rename(target)
        return
    for path in source.iterdir():
        _move(path, target / path.name)
