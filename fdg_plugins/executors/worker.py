# SPDX-License-Identifier: Apache-2.0
"""The training process: does orders one by one until its parent is gone. ``TrainingProcess`` starts it.

``python -P -m fdg_plugins.executors.worker PARENT ANSWERS FOLDER [shares] [memory=DOWN,UP]``: orders arrive on standard
input; outcomes and log lines leave through the file descriptor ``ANSWERS``; anything a library prints goes to the
parent's log. ``FOLDER`` only shows which run the process belongs to. ``DOWN`` and ``UP`` are the descriptors of the
memory for the tensors of orders and of outcomes; without it, they come and go through the pipes.
"""

import ctypes
import faulthandler
import os
import select
import signal
import sys
import threading

from fdg_plugins.executors.dialogue import pack_line, pack_outcome, read_order
from fdg_plugins.executors.frames import FrameReader, read_frame, write_frame
from fdg_plugins.executors.shared_memory import SharedMemory
from fdg_plugins.executors.work import SiteWork

PR_SET_PDEATHSIG = 1
SHARES = "shares"
MEMORY = "memory="


def serve(
    orders: int,
    answers: int,
    *,
    shares: bool = False,
    down: SharedMemory | None = None,
    up: SharedMemory | None = None,
) -> None:
    """Do the orders that arrive on the file descriptor ``orders`` until it is closed; write to ``answers``.

    ``shares``: whether they are those of many sites, which share what is opened. ``down``, ``up``: the memory for the
    tensors of orders and of outcomes.
    """
    reader, work = FrameReader(down), _work_of_many() if shares else SiteWork()

    def say(line: str) -> None:
        write_frame(answers, pack_line(line))

    while (frame := read_frame(orders, reader)) is not None:
        order, config, folder = read_order(frame)
        # This process is never asked to stop. It is killed, which ends even a hanging kernel.
        outcome = work.do_work(order, config, folder, lambda: False, say)
        write_frame(answers, pack_outcome(outcome, up))


def _work_of_many() -> SiteWork:
    from fdg_plugins.data import SharedDomains  # what imports this module for its names needs no data

    return SiteWork(SharedDomains())


def end_with_parent(parent: int, orders: int) -> None:
    """Make this process and its children end when the process ``parent`` ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before prctl took effect
        os._exit(0)
    threading.Thread(target=_end_when_hung_up, args=(orders,), daemon=True).start()


def _end_when_hung_up(orders: int) -> None:
    """Wait until the sending end is closed, then exit. Reads nothing, since other threads read or fork meanwhile."""
    poll = select.poll()
    poll.register(orders, 0)
    poll.poll()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def main(arguments: list[str]) -> None:
    """Take over the pipes and serve orders; ``arguments``: those of the command."""
    parent, answers = int(arguments[0]), int(arguments[1])
    faulthandler.enable()
    orders = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.set_inheritable(answers, False)
    end_with_parent(parent, orders)
    down, up = _memory_in(arguments[3:])
    serve(orders, answers, shares=SHARES in arguments[3:], down=down, up=up)


def _memory_in(arguments: list[str]) -> tuple[SharedMemory | None, SharedMemory | None]:
    """Return the memory that the arguments name, which no process that this one starts inherits."""
    given = [text.removeprefix(MEMORY) for text in arguments if text.startswith(MEMORY)]
    if not given:
        return None, None
    down, up = map(int, given[0].split(","))
    for descriptor in (down, up):
        os.set_inheritable(descriptor, False)
    return SharedMemory(down), SharedMemory(up)


if __name__ == "__main__":
    main(sys.argv[1:])
