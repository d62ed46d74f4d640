# SPDX-License-Identifier: Apache-2.0
"""FLARE's ``ModelController`` with features it has no public API for: poll interval, late answers, error replies."""

import logging
import time
from contextlib import suppress
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.model_controller import ModelController

from fdg_plugins.errors import SettingsError, check_number, one_line
from fdg_plugins.flare.peers import correct_claims, correct_messages, mark_asking_sites

LONGEST_LINE = 1000  # characters
SHORTEST_POLL_S, LONGEST_POLL_S = 0.0001, 60  # below, a thread would spin; above, no abort and no timeout is noticed


class Workflow(ModelController):
    """A workflow that looks for answers every ``poll`` seconds and sees each one, also late ones and errors."""

    def __init__(self, poll: float) -> None:
        # No persistor, because the workflow writes its own files. An error reply is recorded like any other answer and
        # the round continues; the subclass decides how many usable answers it needs.
        super().__init__(persistor_id="", ignore_result_error=True)
        self.poll = poll
        self.local_tasks: Any = None  # in one process, the sites' tasks are done while it waits

    def set_communicator(self, communicator: Any) -> None:
        """Make FLARE's task monitor look for answers as often as this workflow."""
        super().set_communicator(communicator)
        with suppress(SettingsError):  # the subclass says so once it runs; FLARE's monitor would end without a word
            self.check_poll()
            communicator._task_check_period = self.poll

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

    def wait_a_moment(self) -> None:
        """Wait until answers may have come: from other processes, or of a site of this one, which works meanwhile."""
        if self.local_tasks is None:
            time.sleep(self.poll)
        else:
            self.local_tasks.wait(self.poll)

    def check_poll(self) -> None:
        """Raise ``SettingsError`` unless ``poll`` is a number of seconds that a monitor can wait between looks."""
        check_number("poll", self.poll, at_least=SHORTEST_POLL_S, at_most=LONGEST_POLL_S)

    def is_lost(self, site: str) -> bool:
        """Return whether FLARE considers the site disconnected."""
        return bool(self.communicator.get_client_disconnect_time(site))

    def note_answer(self, site: str, result: Shareable) -> bool:
        """Record a site's answer, including an error reply; return whether it is usable."""
        raise NotImplementedError

    def note_unreadable(self, site: str, error: Exception) -> None:
        """Record that a site's answer cannot be read, with the error, whose text may be the site's."""
        raise NotImplementedError

    def _accept_train_result(
        self, client_name: str, result: Shareable, fl_ctx: FLContext, is_unknown_task: bool = False
    ) -> bool:
        if is_unknown_task:
            self.warning(f"site {client_name}: its answer came after its task had ended, and is not used.")
            return False
        try:
            if not self.note_answer(client_name, result):
                return False
            FLModelUtils.from_shareable(result)  # FLARE does this next, and would log an error's text as it is
            return bool(super()._accept_train_result(client_name, result, fl_ctx, is_unknown_task))
        except Exception as error:  # noqa: BLE001 - with any, FLARE would end the task for all other sites
            self.note_unreadable(client_name, error)
            return False


def _in_one_line(record: logging.LogRecord) -> bool:
    """Make a line of FLARE's printable: some quote a site, which could otherwise write lines in the server's name.

    An error's may have a traceback.
    """
    if record.levelno < logging.ERROR and not record.name.startswith("fdg_plugins"):
        record.msg, record.args = one_line(record.getMessage(), LONGEST_LINE), ()
    return True
