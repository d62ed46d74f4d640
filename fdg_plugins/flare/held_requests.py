# SPDX-License-Identifier: Apache-2.0
"""Long polling: a site's request for a task waits at the server until a task exists, instead of being repeated.

By default, FLARE answers at once that there is no task, and the site asks again after an interval (half a second in the
simulator, which cannot be configured). That interval is most of a short round. Here the answer is held back for a
while. The site gets its task as soon as it exists, and an idle site asks twice a second instead of fifty times.

While a task waits for its site, no other request is held, because in the simulator that site may need the slot of an
idle one.
"""

import threading
import time
from collections.abc import Iterable
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fdg_plugins.flare.internals import HOLDING, InternalsError, fetch

LONGEST_S = 0.5  # seconds; far below the timeout after which a site considers a request lost
GRACE_S = 0.1  # seconds in which held sites fetch the tasks offered to them
MOST = 16  # requests held at a time: each occupies one of FLARE's 64 reply threads, which results need too


class HeldRequests:
    """Holds back requests for tasks while there are no tasks; :meth:`offer` makes all of them check again.

    Args:
        longest: maximum time for which a request is held, in seconds.
        most: maximum number of requests held at a time; ``held`` is the current number.
    """

    def __init__(self, longest: float = LONGEST_S, most: int = MOST) -> None:
        self.longest = longest
        self.most = most
        self.held = 0
        self._change = threading.Condition()
        self._offers = 0
        self._unfetched: set[str] = set()
        self._ended = False

    def begin(self, runner: Any) -> str | None:
        """Hold requests to ``runner``, FLARE's server runner, from now on; return the reason if this is not possible.

        Returns None on success, and a sentence if this FLARE version lacks a required internal.
        """
        try:
            none_yet, end = (fetch(HOLDING, f"SpecialTaskName.{name}") for name in ("TRY_AGAIN", "END_RUN"))
            fetch(HOLDING, "ServerRunner.process_task_request")
        except InternalsError as error:
            return str(error)
        known = runner.process_task_request

        def look(client: Client, fl_ctx: FLContext) -> tuple[str, str, Shareable]:
            found: tuple[str, str, Shareable] = known(client, fl_ctx)
            if found[0] not in (none_yet, end):
                self._fetched(client.name)
            return found

        def process(client: Client, fl_ctx: FLContext) -> tuple[str, str, Shareable]:
            until, seen = time.monotonic() + self.longest, self._offers
            found = look(client, fl_ctx)
            if found[0] != none_yet or not self._has_place():
                return found
            try:
                while found[0] == none_yet and self._is_offered(seen, until):
                    seen = self._offers
                    found = look(client, fl_ctx)
                return found
            finally:
                self._leave()

        runner.process_task_request = process
        return None

    def turns(self, count: int) -> int:
        """Return 1: all ``count`` sites work at the same time, each on a machine of its own."""
        return 1

    def announce(self, sites: Iterable[str]) -> None:
        """Announce tasks for ``sites``; call this before creating them, since a site may fetch its task at once."""
        with self._change:
            self._unfetched = set(sites)

    def offer(self) -> None:
        """Signal that the announced tasks now exist."""
        with self._change:
            self._offers += 1
            self._change.notify_all()

    def wait(self, seconds: float) -> None:
        """Let the workflow wait for answers, which come from other processes."""
        time.sleep(seconds)

    def withdraw(self) -> None:
        """Signal that no tasks remain."""
        with self._change:
            self._unfetched.clear()
            self._change.notify_all()

    def end(self) -> None:
        """Release all requests and hold none from now on."""
        with self._change:
            self._ended = True
            self._change.notify_all()

    def _has_place(self) -> bool:
        with self._change:
            has_place = self.held < self.most
            self.held += has_place
            return has_place

    def _leave(self) -> None:
        with self._change:
            self.held -= 1

    def _fetched(self, site: str) -> None:
        with self._change:
            self._unfetched.discard(site)
            if not self._unfetched:
                self._change.notify_all()

    def _is_offered(self, seen: int, until: float) -> bool:
        """Wait for an offer beyond the first ``seen``; return whether one came before ``until`` and before the end."""
        with self._change:
            grace = min(until - time.monotonic(), GRACE_S)
            if self._change.wait_for(lambda: self._is_new(seen) or not self._unfetched, grace):
                self._change.wait_for(lambda: self._is_new(seen), until - time.monotonic())
            return not self._ended and self._offers != seen

    def _is_new(self, seen: int) -> bool:
        return self._ended or self._offers != seen
