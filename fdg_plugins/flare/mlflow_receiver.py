# SPDX-License-Identifier: Apache-2.0
"""FLARE's receiver for MLflow: one run of the server, with its settings as parameters. Needs the extra ``mlflow``.

The operator says in the server's environment where runs are kept (``MLFLOW_TRACKING_URI``); without that, in a database
in the folder of the job.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# Before MLflow is imported: it would report its use to its makers, and repeat a failed request for minutes.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

import mlflow
from mlflow.entities import Param
from mlflow.exceptions import MlflowException
from mlflow.tracking.client import MlflowClient
from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsData, TrackConst
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_opt.tracking.mlflow.mlflow_receiver import MLflowReceiver

from fdg_plugins.flare.trackers import MLFLOW_FILE, Receiver, TrackedRun

ADDRESS = "MLFLOW_TRACKING_URI"
LONGEST = 500  # characters of a parameter, which every version of MLflow takes
_UNSAFE = re.compile(r"[^\w\-. :/]", re.ASCII)


class RunReceiver(MLflowReceiver, Receiver):
    """Keeps a run of a federation in MLflow; FLARE's own keeps one for every site, and takes its address from a job."""

    @classmethod
    def of_run(cls, run: TrackedRun) -> "RunReceiver":
        """Return the receiver of a run; its group is the experiment."""
        tags = {"fdg_plugins.run": str(run.settings.get("run", ""))}
        names = {
            TrackConst.EXPERIMENT_NAME: run.group,
            TrackConst.RUN_NAME: run.name,
            TrackConst.RUN_TAGS: tags,
            TrackConst.EXPERIMENT_TAGS: {},
        }
        made = cls(os.environ.get(ADDRESS, "").strip() or None, names, events=[ANALYTIC_EVENT_TYPE])
        made.settings = run.settings
        return made

    settings: Mapping[str, Any] = {}
    _is_lost = False

    def initialize(self, fl_ctx: FLContext) -> None:
        """Create the run, and send its settings."""
        mlflow.set_tracking_uri(self._get_tracking_uri(fl_ctx))
        origin = fl_ctx.get_identity_name()
        self._mlflow_setup("", self.kw_args[TrackConst.EXPERIMENT_NAME], {}, [origin], fl_ctx)
        self._init_buffer([origin])
        parameters = [Param(_safe(name), str(value)[:LONGEST]) for name, value in self.settings.items()]
        self.mlflow_clients[origin].log_batch(self.run_ids[origin], params=parameters)

    def save(self, fl_ctx: FLContext, shareable: Shareable, record_origin: str) -> None:
        """Send a number, or keep it to be sent with others; after the first failure, do nothing."""
        if self._is_lost:
            return
        with self._noting_loss(fl_ctx):
            super().save(fl_ctx, shareable, record_origin)

    def finalize(self, fl_ctx: FLContext) -> None:
        """Send what is left, and end the run as finished or as failed, also one that lacks metrics."""
        for origin in () if self._is_lost else self.buffer:
            with self._noting_loss(fl_ctx):
                self.flush_buffers(origin)
        for origin, run_id in self.run_ids.items():
            with self._noting_loss(fl_ctx):
                self.mlflow_clients[origin].set_terminated(run_id, "FINISHED" if self.finished else "FAILED")

    @contextmanager
    def _noting_loss(self, fl_ctx: FLContext) -> Iterator[None]:
        """Warn, once, of a server that does not take what it is sent."""
        try:
            yield
        except (MlflowException, OSError) as error:
            if not self._is_lost:
                self.log_warning(fl_ctx, f"MLflow does not take the metrics; the run goes on without it: {error}")
            self._is_lost = True

    def buffer_data(self, data: AnalyticsData, record_origin: str) -> None:
        """Keep a number under a name that MLflow takes."""
        data.tag = _safe(data.tag)
        super().buffer_data(data, record_origin)

    def _get_tracking_uri(self, fl_ctx: FLContext) -> str:
        workspace = fl_ctx.get_engine().get_workspace()
        return self.tracking_uri or f"sqlite:///{workspace.get_run_dir(fl_ctx.get_job_id())}/{MLFLOW_FILE}"

    def _get_run_name(self, kwargs: dict[str, Any], site_name: str, job_id_tag: str, job_name: str) -> str:
        return str(kwargs[TrackConst.RUN_NAME])

    def _get_or_create_experiment(
        self, mlflow_client: MlflowClient, experiment_name: str, artifact_location: str, experiment_tags: Any = None
    ) -> str:
        """Return the id of the experiment; where its files would be is left to the tracking server."""
        found = mlflow_client.get_experiment_by_name(experiment_name)
        return str(found.experiment_id if found else mlflow_client.create_experiment(experiment_name))


def _safe(name: str) -> str:
    return _UNSAFE.sub("_", name)
