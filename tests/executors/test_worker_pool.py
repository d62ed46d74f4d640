# SPDX-License-Identifier: Apache-2.0
"""Workers of the one-process engine: each does one task at a time, and a site returns to the one that knows it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from fdg_plugins.executors.training_process import WorkerPool
from fdg_plugins.executors.work import Say, SiteTask, TaskResult
from fdg_plugins.messages import TASK_TRAIN
from fdg_plugins.settings.site_config import SiteConfig


class FakeWorker:
    """Notes whose tasks it does; ``meet``, if there is one, is waited at within each."""

    def __init__(self, meet: Barrier | None = None) -> None:
        self.sites: list[str] = []
        self.closed = False
        self._meet = meet

    def do_work(self, order: SiteTask, *_: object) -> TaskResult:
        if self._meet is not None:
            self._meet.wait()
        self.sites.append(order.site)
        return TaskResult("ok", order.site)

    def close(self) -> None:
        self.closed = True


def pool_of(workers: list[FakeWorker]) -> WorkerPool:
    left = iter(workers)

    def make(log: Say) -> FakeWorker:
        return next(left)

    return WorkerPool(len(workers), print, make)


def work(pool: WorkerPool, site: str) -> str:
    outcome = pool.do_work(SiteTask(TASK_TRAIN, site, {}), SiteConfig(), Path(), lambda: False, print)
    return str(outcome.value)


def test_tasks_run_at_a_time_and_each_site_returns_to_its_worker() -> None:
    meet = Barrier(2, timeout=120)
    workers = [FakeWorker(meet), FakeWorker(meet)]
    pool = pool_of(workers)
    with ThreadPoolExecutor(2) as threads:
        for _ in range(3):
            assert list(threads.map(lambda site: work(pool, site), ["photo", "sketch"])) == ["photo", "sketch"]
    assert [len(set(one.sites)) for one in workers] == [1, 1]
    assert sorted(one.sites[0] for one in workers) == ["photo", "sketch"]


def test_more_tasks_than_workers_wait_and_closing_ends_all_workers() -> None:
    workers = [FakeWorker()]
    pool = pool_of(workers)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda site: work(pool, site), "abcd")) == list("abcd")
    pool.close()
    assert sorted(workers[0].sites) == list("abcd")
    assert workers[0].closed
