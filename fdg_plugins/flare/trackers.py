# SPDX-License-Identifier: Apache-2.0
"""Trackers of experiments beside TensorBoard, by name: FLARE's receivers for MLflow and for Weights & Biases.

A job may name a tracker, and nothing else: where the metrics go (a database, a server, an account) is told by the
environment of the server's process, which belongs to its operator. Without it, they stay in the folder of the job.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

from nvflare.app_common.widgets.streaming import AnalyticsReceiver

from fdg_plugins.errors import SettingsError, check_extra

VARIABLE = "FDG_TRACKING"
NONE = "none"
MLFLOW_FILE = "mlflow.db"  # in the folder of a job, if MLflow keeps the run there
WANDB_FOLDER = "wandb"  # likewise; the name that Weights & Biases gives it
TRACKERS = ("mlflow", "wandb")  # by name, which is also that of their package and of the extra that installs it


class TrackedRun(NamedTuple):
    """A run as a tracker shows it: its name, the name of what it is compared within, and its settings."""

    name: str
    group: str
    settings: Mapping[str, bool | int | float | str]


def check_tracker(name: object) -> None:
    """Raise ``SettingsError`` unless ``name`` is that of a tracker, or None."""
    if name not in (None, *TRACKERS):
        raise SettingsError(field="tracking", value=name, expected=f"one of {', '.join(TRACKERS)}", public=True)


def chosen_tracker(asked: str | None, environment: Mapping[str, str]) -> str | None:
    """Return the tracker that the server's environment names, else the one that the job asks for; None for none.

    Raises ``SettingsError`` for one that does not exist, or whose package is not installed.
    """
    name = environment.get(VARIABLE, "").strip() or asked
    if name is None or name == NONE:
        return None
    check_tracker(name)
    check_extra(name, f"tracking {name!r}", name)
    return name


def make_receiver(name: str, run: TrackedRun) -> AnalyticsReceiver:
    """Return FLARE's receiver of a run for the tracker ``name``, whose package is imported now."""
    receiver: AnalyticsReceiver = import_module(f"fdg_plugins.flare.{name}_receiver").RunReceiver(run)
    return receiver
