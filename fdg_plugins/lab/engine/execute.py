# SPDX-License-Identifier: Apache-2.0
"""Follow a run from its start to its end; whatever happens, no process of it is left."""

import time
from typing import NamedTuple, Protocol

from fdg_plugins.errors import DataError
from fdg_plugins.lab.engine.engine import Engine, Launch
from fdg_plugins.lab.sweep.execute import POLL_S, StopOrder
from fdg_plugins.lab.sweep.run_process import RunProcess
from fdg_plugins.record.run_files import RESULTS_FILE
from fdg_plugins.record.run_record import RunRecord

STOPPED = "the user stopped the run"


class Watcher(Protocol):
    """The interface that informs the user."""

    def show(self, record: RunRecord) -> None:
        """The record has changed."""


class Ending(NamedTuple):
    """How a run ended: its last record, if it wrote one, its duration, and why it did not finish (None: it did).

    ``stopped``: the user has ended it.
    """

    record: RunRecord | None
    seconds: float
    reason: str | None
    stopped: bool = False


def carry_out(engine: Engine, launch: Launch, watcher: Watcher, order: StopOrder) -> Ending:
    """Execute a run until it ends, or until ``order`` ends it; when this returns or raises, no process of it is left.

    A run that cannot be started, or whose record cannot be read, has failed like any other.
    """
    if order.signal is not None:
        return Ending(None, 0.0, STOPPED, stopped=True)
    try:
        return _followed(_Follower(engine.start(launch), watcher), order)
    except DataError as error:
        return Ending(None, 0.0, str(error))


def _followed(follower: "_Follower", order: StopOrder) -> Ending:
    """Follow an execution that was started to its end."""
    execution = follower.execution
    try:
        while order.signal is None and not execution.has_ended():
            follower.look()
            time.sleep(POLL_S)
        seconds = execution.seconds
    finally:
        execution.end()
    follower.look()
    finished = follower.record is not None and follower.record.status == "finished"  # however its process ended
    ending = Ending(follower.record, seconds, None if finished else execution.failure())
    was_stopped = ending.reason is not None and order.signal is not None
    return ending._replace(reason=STOPPED, stopped=True) if was_stopped else ending


class _Follower:
    """Reads the record of an execution as it grows, and hands each state of it to a watcher once."""

    def __init__(self, execution: RunProcess, watcher: Watcher) -> None:
        self.execution = execution
        self.record: RunRecord | None = None
        self._watcher = watcher
        self._content: object = None

    def look(self) -> None:
        content = self.execution.record()
        if content is self._content:
            return
        self._content = content
        self.record = RunRecord.read(content, RESULTS_FILE, DataError)
        self._watcher.show(self.record)
