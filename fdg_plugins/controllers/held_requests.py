# SPDX-License-Identifier: Apache-2.0
"""A site's request for a task waits at the server until there is one, in place of coming again and again.

FLARE answers at once that there is none, and the site asks anew after an interval (in the simulator after half a
second that nothing can change), which is most of a short round. Here the answer is held back for a while: the site
has its task as soon as there is one, and one that has nothing to do for long asks twice a second, not twenty times.
"""

import threading
import time
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.private.defs import SpecialTaskName

LONGEST_S = 0.5  # far below the seconds after which a site takes a request for lost
MOST = 16  # requests held at a time: each has one of FLARE's 64 threads for answers, which results need too


class HeldRequests:
    """Holds requests for tasks back while there is none; :meth:`changed` lets all of them look again."""

    def __init__(self, longest: float = LONGEST_S, most: int = MOST) -> None:
        self.longest = longest
        self._free = threading.BoundedSemaphore(most)
        self._change = threading.Condition()
        self._changes = 0
        self._ended = False

    def begin(self, runner: Any) -> None:
        """Hold what comes to ``runner``, FLARE's server runner, from now on."""
        known = runner.process_task_request

        def process(client: Client, fl_ctx: FLContext) -> tuple[str, str, Shareable]:
            until, seen = time.monotonic() + self.longest, self._changes
            found: tuple[str, str, Shareable] = known(client, fl_ctx)
            if found[0] != SpecialTaskName.TRY_AGAIN or not self._free.acquire(blocking=False):
                return found
            try:
                while found[0] == SpecialTaskName.TRY_AGAIN and self._waited(seen, until):
                    seen = self._changes
                    found = known(client, fl_ctx)
                return found
            finally:
                self._free.release()

        runner.process_task_request = process

    def changed(self) -> None:
        """Say that there are tasks that were not there before."""
        with self._change:
            self._changes += 1
            self._change.notify_all()

    def end(self) -> None:
        """Hold nothing any more."""
        with self._change:
            self._ended = True
            self._change.notify_all()

    def _waited(self, seen: int, until: float) -> bool:
        """Wait for a change after ``seen`` of them; return whether there was one in time, and it is not the end."""
        with self._change:
            self._change.wait_for(lambda: self._ended or self._changes != seen, until - time.monotonic())
            return not self._ended and self._changes != seen
