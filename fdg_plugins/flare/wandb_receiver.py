# SPDX-License-Identifier: Apache-2.0
"""FLARE's receiver for Weights & Biases: one run of the server, with its settings. Needs the extra ``wandb``.

The run is kept in the folder of the job, unless the operator says ``WANDB_MODE=online`` in the server's environment,
beside the key and the address of the account. Beyond metrics and settings, nothing about the server is recorded: no
code, no console, no load of the machine.
"""

import os
from multiprocessing import Process, Queue
from typing import Any

os.environ["WANDB_ERROR_REPORTING"] = "false"  # before it is imported: it would report errors to its makers

from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE
from nvflare.apis.fl_context import FLContext
from nvflare.app_opt.tracking.wandb.wandb_receiver import WandBReceiver, WandBTask

from fdg_plugins.flare.trackers import Receiver, TrackedRun

MODES = ("offline", "online", "shared", "disabled")
PATIENCE_S = 60.0  # for the last metrics
QUIET = {
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "silent": True,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}


class RunReceiver(WandBReceiver, Receiver):
    """Keeps a run of a federation in Weights & Biases; FLARE's own keeps one for every site."""

    @classmethod
    def of_run(cls, run: TrackedRun) -> "RunReceiver":
        """Return the receiver of a run; its group is the project."""
        mode = os.environ.get("WANDB_MODE", "").strip()
        arguments = {
            "project": run.group,
            "name": run.name,
            "group": str(run.settings.get("method", run.name)),
            "job_type": "federation",
            "config": dict(run.settings),
            "settings": QUIET,
        }
        return cls(arguments, mode if mode in MODES else MODES[0], [ANALYTIC_EVENT_TYPE], PATIENCE_S)

    def initialize(self, fl_ctx: FLContext) -> None:
        """Start the process that writes the run."""
        self.fl_ctx = fl_ctx
        origin = fl_ctx.get_identity_name()
        folder = fl_ctx.get_engine().get_workspace().get_run_dir(fl_ctx.get_job_id())
        begin: dict[str, Any] = {**self.wandb_args, "mode": self.mode, "dir": str(folder)}
        queue: Queue[WandBTask] = Queue()
        queue.put(WandBTask(task_owner=origin, task_type="init", task_data=begin, step=0))
        self.queues[origin] = queue
        self.processes[origin] = Process(target=self._process_queue_tasks, args=(queue,))
        self.processes[origin].start()

    def finalize(self, fl_ctx: FLContext) -> None:
        """Write what is left, and end the process."""
        super().finalize(fl_ctx)
        for process in self.processes.values():
            process.join()
            if process.exitcode != 0:
                self.log_warning(fl_ctx, "Weights & Biases has not taken all metrics; its own log says why.")
