# SPDX-License-Identifier: Apache-2.0
"""Tasks in one process: while the workflow waits for answers, the sites do the tasks that it has offered.

Nobody polls. The workflow offers tasks to sites. Each time it waits, the next of these sites
fetches its task from the server, does it and hands in the result, all in the workflow's own thread. Only if all have
had their turn and a task still stands are they asked again, as FLARE's sites would ask.

If several sites work at a time, each does so in a thread, and the workflow waits until one of them is done, or for a
moment, so that it notices a deadline. A site that still works when the workflow ends is interrupted.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

MOMENT_S = 0.1


class LocalTasks:
    """The tasks that a workflow offers to the sites of its process.

    Args:
        do_next: lets a site fetch its next task, do it and hand in the result.
        settle: lets the server notice at once which tasks have ended.
        at_once: the number of sites that work at a time.
        interrupt: lets a site give up what it does.
    """

    def __init__(
        self,
        do_next: Callable[[str], None],
        settle: Callable[[], None],
        at_once: int = 1,
        interrupt: Callable[[str], None] = lambda site: None,
    ) -> None:
        self._do_next = do_next
        self._interrupt = interrupt
        self._settle = settle
        self._sites: tuple[str, ...] = ()
        self._offered: deque[str] = deque()
        self._at_once = at_once
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="fdg-site") if at_once > 1 else None
        self._working: dict[str, Future[None]] = {}

    def turns(self, count: int) -> int:
        """Return how often sites work before all ``count`` of them have done so, at least 1."""
        return max(1, -(-count // self._at_once))

    def offer(self, sites: Iterable[str]) -> None:
        """Signal that there are tasks for ``sites``."""
        self._sites = tuple(sites)
        self._offered.extend(self._sites)

    def wait(self, seconds: float) -> None:
        """Let the next sites do their tasks; if all have had their turn, wait so many seconds and begin anew."""
        if self._threads is not None and (self._offered or self._working):
            self._wait_for_one(self._threads)
        elif self._offered:
            self._do_next(self._offered.popleft())
        else:
            time.sleep(seconds)
            self._offered.extend(self._sites)
        self._settle()

    def withdraw(self) -> None:
        """Signal that no tasks remain."""
        self._sites = ()
        self._offered.clear()

    def end(self) -> None:
        """Signal that the workflow has ended; sites that still work give up."""
        self.withdraw()
        if self._threads is not None:
            for site, future in self._working.items():
                if not future.done():
                    self._interrupt(site)
            self._threads.shutdown()
            self._working.clear()

    def _wait_for_one(self, threads: ThreadPoolExecutor) -> None:
        """Let as many sites work as may, none twice at a time, until one is done or for a moment.

        Raises what a site raises.
        """
        for site in [site for site in self._offered if site not in self._working]:
            if len(self._working) < self._at_once and site not in self._working:
                self._offered.remove(site)
                self._working[site] = threads.submit(self._do_next, site)
        done, _ = wait(self._working.values(), timeout=MOMENT_S, return_when=FIRST_COMPLETED)
        for site in [site for site, future in self._working.items() if future in done]:
            self._working.pop(site).result()
