# SPDX-License-Identifier: Apache-2.0
"""FLARE's ``ModelController`` with what it has no public API for: poll interval, names of sites, error replies."""

import logging
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.app_common.workflows.model_controller import ModelController

from fdg_plugins.errors import one_line
from fdg_plugins.flare.peers import correct_claims, correct_messages, mark_asking_sites

LONGEST_LINE = 1000  # characters
POLL_S = 0.005  # between looks for answers


class Workflow(ModelController):
    """A workflow that looks for answers often, and knows sites by what FLARE has authenticated."""

    def __init__(self) -> None:
        # No persistor, because the workflow writes its own files. An error reply is recorded like any other answer and
        # the round continues; the subclass decides how many usable answers it needs.
        super().__init__(persistor_id="", ignore_result_error=True)
        self.local_tasks: Any = None  # in one process, the sites' tasks are done while it waits

    def set_communicator(self, communicator: Any) -> None:
        """Make FLARE's task monitor look for answers as often as this workflow."""
        super().set_communicator(communicator)
        communicator._task_check_period = POLL_S

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the workflow, in which sites are known by what FLARE has authenticated."""
        runner = fl_ctx.get_prop(FLContextKey.RUNNER)
        self.local_tasks = getattr(fl_ctx.get_engine(), "local_tasks", None)
        for handler in logging.getLogger().handlers:
            handler.addFilter(_in_one_line)  # once, however often
        if runner is not None:
            mark_asking_sites(runner)
            correct_claims(runner)
            correct_messages(fl_ctx.get_engine())
            # Otherwise FLARE ends the job when a single site replies with one of three codes, such as TASK_UNKNOWN.
            runner.ABORT_RETURN_CODES = []
        try:
            super().control_flow(abort_signal, fl_ctx)
        finally:
            if self.local_tasks is not None:
                self.local_tasks.end()


def _in_one_line(record: logging.LogRecord) -> bool:
    """Make a line of FLARE's printable: some quote a site, which could otherwise write lines in the server's name.

    An error's may have a traceback.
    """
    if record.levelno < logging.ERROR and not record.name.startswith("fdg_plugins"):
        record.msg, record.args = one_line(record.getMessage(), LONGEST_LINE), ()
    return True
