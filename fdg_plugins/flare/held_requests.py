# SPDX-License-Identifier: Apache-2.0
"""A site's request for a task waits at the server until there is one, in place of coming again and again.

FLARE answers at once that there is none, and the site asks anew after an interval (in the simulator after half a
second that nothing can change), which is most of a short round. Here the answer is held back for a while: the site
has its task as soon as there is one, and one that has nothing to do for long asks twice a second, not twenty times.

As long as a task waits for its site nobody else is held, for in the simulator that site may need the place of one
that has nothing to do.
"""

import threading
import time
from collections.abc import Iterable
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fdg_plugins.flare.internals import HOLDING, InternalsError, fetch

LONGEST_S = 0.5  # far below the seconds after which a site takes a request for lost
GRACE_S = 0.1  # in which sites that were held fetch what was offered to them
MOST = 16  # requests held at a time: each has one of FLARE's 64 threads for answers, which results need too


class HeldRequests:
    """Holds requests for tasks back while there is none; :meth:`offer` lets all of them look again.

    Args:
        longest: seconds for which one is held.
        most: how many are held at a time; ``held`` is how many are.
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
        """Hold what comes to ``runner``, FLARE's server runner, from now on; return why not, if this FLARE cannot."""
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

    def announce(self, sites: Iterable[str]) -> None:
        """Say that there will be tasks for ``sites``; before them, for a site may fetch its own at once."""
        with self._change:
            self._unfetched = set(sites)

    def offer(self) -> None:
        """Say that there are the tasks that were announced."""
        with self._change:
            self._offers += 1
            self._change.notify_all()

    def withdraw(self) -> None:
        """Say that there are no tasks any more."""
        with self._change:
            self._unfetched.clear()
            self._change.notify_all()

    def end(self) -> None:
        """Hold nothing any more."""
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
        """Wait for an offer after ``seen`` of them; return whether there was one in time, and it is not the end."""
        with self._change:
            grace = min(until - time.monotonic(), GRACE_S)
            if self._change.wait_for(lambda: self._is_new(seen) or not self._unfetched, grace):
                self._change.wait_for(lambda: self._is_new(seen), until - time.monotonic())
            return not self._ended and self._offers != seen

    def _is_new(self, seen: int) -> bool:
        return self._ended or self._offers != seen
