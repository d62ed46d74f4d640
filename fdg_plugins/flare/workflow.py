# SPDX-License-Identifier: Apache-2.0
"""FLARE's ``ModelController`` with what it has no public door for: how often it looks, who is late, error replies."""

from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.workflows.model_controller import ModelController

from fdg_plugins.flare.held_requests import HeldRequests


class Workflow(ModelController):
    """A workflow that looks for answers every ``poll`` seconds and sees each of them, the late and the bad ones too.

    What FLARE lacks of this is done without, but for the answers: who runs the workflow asks
    ``require(ASKING)`` (:mod:`~fdg_plugins.flare.internals`) before any site is asked.
    """

    def __init__(self, poll: float) -> None:
        # No persistor: the workflow keeps its own files. An error reply is an answer like any other: noted, and
        # the round goes on; how many usable ones it needs is this workflow's own rule.
        super().__init__(persistor_id="", ignore_result_error=True)
        self.poll = poll
        self.requests = HeldRequests()

    def set_communicator(self, communicator: Any) -> None:
        """Make FLARE's task monitor look as often as this workflow does, and tell of sites that are late."""
        super().set_communicator(communicator)
        communicator._task_check_period = self.poll
        known = getattr(communicator, "process_task_check", None)
        if known is None:
            return

        def check(task_id: str, fl_ctx: FLContext) -> Any:
            """Name a site whose answer comes after its task: it is told to drop it, and FLARE tells nobody else."""
            found = known(task_id, fl_ctx)
            peer = fl_ctx.get_peer_context()
            if found is None and peer is not None:
                self.note_late(peer.get_identity_name(), "its answer came too late, and is not used.")
            return found

        communicator.process_task_check = check

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the workflow, and meanwhile hold sites' requests for tasks back until there are some."""
        runner = fl_ctx.get_prop(FLContextKey.RUNNER)
        if runner is not None and (problem := self.requests.begin(runner)):
            self.warning(problem)
        try:
            super().control_flow(abort_signal, fl_ctx)
        finally:
            self.requests.end()

    def is_lost(self, site: str) -> bool:
        """Return whether FLARE has had no sign of life from the site."""
        return bool(self.communicator.get_client_disconnect_time(site))

    def note_late(self, site: str, what: str) -> None:
        """Take note of a site whose answer came after its task had ended."""
        raise NotImplementedError

    def note_answer(self, site: str, result: Shareable) -> bool:
        """Take note of a site's answer, an error reply too; return whether it is one that can be used."""
        raise NotImplementedError

    def _accept_train_result(
        self, client_name: str, result: Shareable, fl_ctx: FLContext, is_unknown_task: bool = False
    ) -> bool:
        if is_unknown_task:
            self.note_late(client_name, "its answer came after its task had ended, and is not used.")
            return False
        if not self.note_answer(client_name, result):
            return False
        return bool(super()._accept_train_result(client_name, result, fl_ctx, is_unknown_task))
