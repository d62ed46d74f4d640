# SPDX-License-Identifier: Apache-2.0
"""The one-process engine: ends hand each other copies, and each task that is offered is done once, in order."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from nvflare.apis.shareable import Shareable

from fdg_plugins.errors import DataError
from fdg_plugins.lab.engine.local_parties import LocalTasks, copied

SOURCES: list[Callable[[], torch.Tensor]] = [
    lambda: torch.arange(6.0),
    lambda: torch.arange(12.0)[3:9],
    lambda: torch.from_numpy(np.arange(6.0, dtype=np.float32)),
    lambda: copied(torch.arange(6.0)),
    lambda: torch.arange(12.0).view(3, 4).t(),
    lambda: torch.tensor(3),
]
WRITES: list[Callable[[torch.Tensor], object]] = [
    lambda value: value.add_(1),
    lambda value: value.numpy().fill(7),
    lambda value: value.view(-1)[:1].zero_().sub_(1) if value.is_contiguous() else value.zero_().sub_(1),
]


@pytest.mark.parametrize("make", SOURCES)
def test_a_write_at_one_end_does_not_reach_the_other(make: Callable[[], torch.Tensor]) -> None:
    for write in WRITES:
        for at_source in (True, False):
            source = make()
            before, other = source.clone(), copied(copied(source))
            assert torch.equal(other, before)
            # data_ptr() would make torch copy, if it had put that off until a write.
            assert not any(torch._C._is_cow_tensor(value) for value in (source, other))  # type: ignore[attr-defined]
            assert source.data_ptr() != other.data_ptr()
            written, kept = (source, other) if at_source else (other, source)
            write(written)
            assert torch.equal(kept, before)
            assert not torch.equal(written, before)


def test_a_copied_message_has_the_same_values_and_no_object_that_changes_in_common() -> None:
    message = Shareable({"DXO": {"data": {"w": torch.ones(2)}, "list": [1, {"a": np.ones(2)}]}})
    other = copied(message)
    assert isinstance(other, Shareable)
    other["DXO"]["data"]["w"] += 1
    other["DXO"]["list"][1]["a"] += 1
    assert message["DXO"]["data"]["w"].tolist() == message["DXO"]["list"][1]["a"].tolist() == [1, 1]


def wait_for(event: threading.Event) -> None:
    assert event.wait(300)


class Seen:
    """What happens, in order; any sleep is recorded instead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        monkeypatch.setattr("time.sleep", lambda seconds: self.events.append(f"sleeps {seconds}"))
        self.tasks = LocalTasks(self.events.append, lambda: self.events.append("settled"))


def test_each_wait_lets_one_site_work(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    seen.tasks.wait(0.1)
    seen.tasks.offer(["photo", "sketch"])
    for _ in range(4):
        seen.tasks.wait(0.1)
    turn = ["photo", "settled", "sketch", "settled"]
    assert seen.events == ["sleeps 0.1", "settled", *turn, "sleeps 0.1", "settled", "photo", "settled"]


def test_new_tasks_take_the_place_of_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    for sites in (["photo", "sketch"], ["art"]):
        seen.tasks.offer(sites)
        seen.tasks.wait(0.1)
    assert seen.events == ["photo", "settled", "art", "settled"]


@pytest.mark.parametrize(("at_once", "count", "turns"), [(1, 6, 6), (1, 0, 1), (2, 6, 3), (4, 6, 2), (8, 6, 1)])
def test_sites_have_their_turns(at_once: int, count: int, turns: int) -> None:
    tasks = LocalTasks(lambda site: None, lambda: None, at_once)
    try:
        assert tasks.turns(count) == turns
    finally:
        tasks.end()


def test_several_sites_work_at_a_time_and_none_twice() -> None:
    done: list[str] = []
    meet = threading.Barrier(2, timeout=120)

    def do(site: str) -> None:
        meet.wait()  # returns only if two sites work at the same time
        done.append(site)

    tasks = LocalTasks(do, lambda: None, at_once=2)
    sites = ["art", "photo", "sketch", "web"]
    tasks.offer(sites)
    while len(done) < len(sites):
        tasks.wait(0.01)
    tasks.end()
    assert sorted(done) == sites


def test_a_wait_ends_although_a_site_still_works_and_the_end_of_the_workflow_interrupts_it() -> None:
    given_up, interrupted = threading.Event(), []

    def interrupt(site: str) -> None:
        interrupted.append(site)
        given_up.set()

    settled: list[None] = []
    tasks = LocalTasks(
        lambda site: None if site == "art" else wait_for(given_up), lambda: settled.append(None), 2, interrupt
    )
    tasks.offer(["art", "photo"])
    for _ in range(3):
        tasks.wait(0.01)
    assert (len(settled), interrupted) == (3, [])
    tasks.end()
    assert interrupted == ["photo"]


def test_what_a_site_raises_in_a_thread_reaches_the_workflow() -> None:
    def do(site: str) -> None:
        raise DataError(f"site {site} is broken.")

    tasks = LocalTasks(do, lambda: None, at_once=2)
    tasks.offer(["photo"])
    with pytest.raises(DataError):
        tasks.wait(0.01)
    tasks.end()
