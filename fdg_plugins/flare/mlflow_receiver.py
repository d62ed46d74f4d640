# SPDX-License-Identifier: Apache-2.0
"""FLARE's receiver for MLflow, with one run for the server and its settings. Needs the extra ``mlflow``.

The operator says in the server's environment where runs are kept (``MLFLOW_TRACKING_URI``); without that, in a database
in the folder of the job.
"""

import os

# Before MLflow is imported: it would report its use to its makers, and repeat a failed request for minutes.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

import mlflow
from mlflow.entities import Param
from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, TrackConst
from nvflare.apis.fl_context import FLContext
from nvflare.app_opt.tracking.mlflow.mlflow_receiver import MLflowReceiver

from fdg_plugins.flare.trackers import MLFLOW_FILE, TrackedRun

LONGEST = 500  # characters of a parameter, which every version of MLflow takes


class RunReceiver(MLflowReceiver):
    """Keeps a run of a federation; FLARE's own keeps one for every site, and takes its address from a job."""

    def __init__(self, run: TrackedRun) -> None:
        names = {TrackConst.EXPERIMENT_NAME: run.group, TrackConst.RUN_NAME: run.name, TrackConst.RUN_TAGS: {}}
        super().__init__(os.environ.get("MLFLOW_TRACKING_URI", "").strip() or None, names, events=[ANALYTIC_EVENT_TYPE])
        self.run = run

    def initialize(self, fl_ctx: FLContext) -> None:
        """Create the run, and send its settings."""
        folder = fl_ctx.get_engine().get_workspace().get_run_dir(fl_ctx.get_job_id())
        origin = fl_ctx.get_identity_name()
        mlflow.set_tracking_uri(self.tracking_uri or f"sqlite:///{folder}/{MLFLOW_FILE}")
        self._mlflow_setup(f"{folder}/artifacts", self.run.group, {}, [origin], fl_ctx)
        self._init_buffer([origin])
        parameters = [Param(name, str(value)[:LONGEST]) for name, value in self.run.settings.items()]
        self.mlflow_clients[origin].log_batch(self.run_ids[origin], params=parameters)

    def _get_run_name(self, *_: object) -> str:
        return self.run.name
