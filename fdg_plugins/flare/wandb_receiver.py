# SPDX-License-Identifier: Apache-2.0
"""FLARE's receiver for Weights & Biases, with one run for the server and its settings. Needs the extra ``wandb``.

The run is kept in the folder of the job, unless the operator says ``WANDB_MODE=online`` in the server's environment,
beside the key and the address of the account. Beyond metrics and settings, nothing about the server is recorded: no
code, no console, no load of the machine.
"""

import os
from multiprocessing import Process, Queue

os.environ["WANDB_ERROR_REPORTING"] = "false"  # before it is imported: it would report errors to its makers

from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE
from nvflare.apis.fl_context import FLContext
from nvflare.app_opt.tracking.wandb.wandb_receiver import WandBReceiver, WandBTask

from fdg_plugins.flare.trackers import TrackedRun

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


class RunReceiver(WandBReceiver):
    """Keeps a run of a federation; FLARE's own keeps one for every site."""

    def __init__(self, run: TrackedRun) -> None:
        made = {"project": run.group, "name": run.name, "config": dict(run.settings), "settings": QUIET}
        mode = os.environ.get("WANDB_MODE", "").strip() or "offline"
        super().__init__(made, mode, [ANALYTIC_EVENT_TYPE], PATIENCE_S)

    def initialize(self, fl_ctx: FLContext) -> None:
        """Start the process that writes the run."""
        self.fl_ctx, origin = fl_ctx, fl_ctx.get_identity_name()
        folder = fl_ctx.get_engine().get_workspace().get_run_dir(fl_ctx.get_job_id())
        self.queues[origin] = Queue()
        self.queues[origin].put(
            WandBTask(origin, "init", {**self.wandb_args, "mode": self.mode, "dir": str(folder)}, 0)
        )
        self.processes[origin] = Process(target=self._process_queue_tasks, args=(self.queues[origin],))
        self.processes[origin].start()
