# SPDX-License-Identifier: Apache-2.0
"""Processes that do the tasks of all sites of the one-process engine, several at a time, with the bits of one."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fdg_plugins.executors.isolation import TrainingProcess
from fdg_plugins.executors.work import Say, SiteTask, TaskResult
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.loop import ShouldStop


class Worker(Protocol):
    """What does a task at a time: a :class:`~fdg_plugins.executors.isolation.TrainingProcess`."""

    def do_work(
        self, order: SiteTask, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say
    ) -> TaskResult:
        """Return the outcome of a task."""

    def close(self) -> None:
        """End what works."""


class WorkerPool:
    """Does the tasks of many sites in ``count`` processes, which start when they are needed.

    Any process can do any task: what a site keeps from round to round is in the run's folder at the site. A site goes
    to the process that did its last task, where its data are open, unless that one is busy.
    """

    def __init__(self, count: int, log: Say, make: Callable[[Say], Worker] | None = None) -> None:
        start = make or (lambda log: TrainingProcess(log, shares=True))
        self._all = [start(log) for _ in range(count)]
        self._free = list(self._all)
        self._last: dict[str, Worker] = {}  # by site
        self._changed = threading.Condition()

    def do_work(
        self, order: SiteTask, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say
    ) -> TaskResult:
        """Return the outcome of ``order``, done by a process that is free; callable from several threads."""
        worker = self._take(order.site)
        try:
            return worker.do_work(order, config, folder, should_stop, say)
        finally:
            with self._changed:
                self._free.append(worker)
                self._changed.notify()

    def close(self) -> None:
        """End all processes."""
        for worker in self._all:
            worker.close()

    def _take(self, site: str) -> Worker:
        with self._changed:
            self._changed.wait_for(lambda: self._free)
            known = self._last.get(site)
            worker = known if known in self._free and known is not None else self._free[0]
            self._free.remove(worker)
            self._last[site] = worker
            return worker
