# SPDX-License-Identifier: Apache-2.0
"""Runs a site's tasks in a separate process, so that a crash costs the site one task and nothing else.

A segfault in a native kernel, the operating system's out-of-memory killer or ``os._exit`` in a library would otherwise
end FLARE's job process at the site, and FLARE would then end the whole job. Tasks and results are pickled: both
processes are one user's, and nobody else can write to their pipe.
"""

import atexit
import contextlib
import faulthandler
import io
import multiprocessing
import os
import pickle
import signal
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch

from fdg_plugins.executors.work import Say, SiteTask, SiteWork, TaskResult
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.loop import ShouldStop

POLL_S = 0.05
END_TIMEOUT_S = 10


class TrainingProcess:
    """Runs a site's tasks in a child process, which starts with the first task and keeps its data open between tasks.

    ``log`` receives each line that the child prints. ``shares``: whether it works for many sites, which share what it
    opens. The next task replaces a child that died or met an unexpected error (which may leave an accelerator
    unusable). The child ends when this process ends, however it ends.
    """

    def __init__(self, log: Say, *, shares: bool = False) -> None:
        self._log = log
        self._shares = shares
        self._child: SpawnProcess | None = None
        self._pipe: Connection
        self._working = threading.Lock()
        self._closing = False
        # Otherwise Python would wait at its end for a child that waits for a task.
        atexit.register(lambda: _kill(self._child))

    @property
    def pid(self) -> int | None:
        """The child's process id, or None if there is no child."""
        return None if self._child is None else self._child.pid

    def do_work(
        self, order: SiteTask, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say
    ) -> TaskResult:
        """Return the result of ``order``, as :meth:`SiteWork.do_work` does, except that an abort kills the child."""
        with self._working:
            if self._child is None or not self._child.is_alive():
                self._end()
                try:
                    self._start()
                except OSError as error:
                    return _failed(f"the training process could not be started: {error.strerror}.")
            self._closing, result = False, None
            try:
                result = self._ask((order, config, folder), should_stop, say)
            finally:
                if result is None or result.kind == "aborted" or result.trace:
                    exitcode = self._end()
            if result is None:
                return TaskResult("aborted") if self._closing else _failed(_reason_of_end(exitcode))
            return result

    def close(self) -> None:
        """End the child, even in the middle of a task, which then counts as aborted; callable from any thread."""
        deadline = time.monotonic() + END_TIMEOUT_S
        while not self._working.acquire(timeout=POLL_S):
            self._closing = True
            _kill(self._child)
            if time.monotonic() > deadline:
                return  # called from within the task, which will end the child itself
        self._end()
        self._working.release()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        printed, their_output = context.Pipe(duplex=False)
        child = context.Process(target=_serve, args=(theirs, their_output, self._shares), name="fdg_training")
        try:
            child.start()
        finally:
            theirs.close()
            their_output.close()
        self._child = child
        threading.Thread(target=_relay, args=(printed, self._log), daemon=True).start()

    def _ask(self, task: Any, should_stop: ShouldStop, say: Say) -> TaskResult | None:
        """Return the result of a task, ``aborted`` if it should stop; None if the child ended."""
        try:
            # In a thread, since a process that hangs reads nothing, and the pipe is soon full.
            threading.Thread(target=_send_unless_ended, args=(self._pipe, _message(task)), daemon=True).start()
            while not should_stop():
                if not self._pipe.poll(POLL_S):
                    continue
                if isinstance(answer := _receive(self._pipe), TaskResult):
                    return answer
                say(answer)
            return TaskResult("aborted")
        except (EOFError, OSError):
            assert self._child is not None
            self._child.join(END_TIMEOUT_S)  # it closed the pipe, so it is ending
            return None

    def _end(self) -> int | None:
        child, self._child = self._child, None
        if child is None:
            return None
        _kill(child)
        child.join(END_TIMEOUT_S)
        self._pipe.close()
        return child.exitcode


def _kill(child: SpawnProcess | None) -> None:
    """Kill a training process and all its children, such as those that load images."""
    if child is not None and child.is_alive():
        with contextlib.suppress(ProcessLookupError):  # it has not made its group yet
            os.killpg(child.pid or 0, signal.SIGKILL)
        child.kill()


def _serve(tasks: Connection, output: Connection, shares: bool) -> None:
    """Do tasks one by one, in the training process, until the other end is gone; ``output`` takes what is printed."""
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    faulthandler.enable()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from fdg_plugins.data import SharedDomains  # FLARE's process, which imports this module too, needs no data

    work = SiteWork(SharedDomains() if shares else None)
    with contextlib.suppress(EOFError):
        while True:
            order, config, folder = _receive(tasks)
            # This process is never asked to stop. It is killed, which ends even a hanging kernel.
            result = work.do_work(order, config, folder, lambda: False, lambda line: _send(tasks, _message(line)))
            _send(tasks, _message(result))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)


def _relay(printed: Connection, log: Say) -> None:
    with os.fdopen(os.dup(printed.fileno()), errors="replace") as lines:
        printed.close()
        for line in lines:
            log(line.rstrip())


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Leave a tensor's values out of the pickle, which would copy them; a sparse one is torch's matter."""
        if type(value) is not torch.Tensor or value.layout != torch.strided:
            return NotImplemented
        content: Any = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(content), value.dtype, value.shape)


def _tensor(content: bytearray, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    return torch.frombuffer(content, dtype=dtype).reshape(shape) if content else torch.empty(shape, dtype=dtype)


def _message(value: Any) -> list[Any]:
    """Return the parts of a message: the pickle, then the values of each tensor."""
    # Not by torch's shared memory, of which a container has 64 MB.
    values: list[pickle.PickleBuffer] = []
    _Pickler(content := io.BytesIO(), protocol=5, buffer_callback=values.append).dump(value)
    return [pickle.dumps((content.getvalue(), len(values))), *(one.raw() for one in values)]


def _send(pipe: Connection, parts: list[Any]) -> None:
    for part in parts:
        pipe.send_bytes(part)


def _send_unless_ended(pipe: Connection, parts: list[Any]) -> None:
    with contextlib.suppress(OSError, TypeError):  # TypeError: the pipe was closed meanwhile
        _send(pipe, parts)


def _receive(pipe: Connection) -> Any:
    content, number = pickle.loads(pipe.recv_bytes())
    return pickle.loads(content, buffers=[bytearray(pipe.recv_bytes()) for _ in range(number)])


def _failed(reason: str) -> TaskResult:
    """Return the result of a task that the process did not complete; the reason contains none of the site's data."""
    return TaskResult("failed", reason=reason, public=reason)


def _reason_of_end(exitcode: int | None) -> str:
    if exitcode == -signal.SIGKILL:
        return "the training process was killed (SIGKILL), perhaps out of memory."
    if exitcode is not None and exitcode < 0:
        return f"the training process died of {signal.Signals(-exitcode).name}."
    return f"the training process ended with exit code {exitcode}."


class WorkerPool:
    """Does the tasks of all sites of the one-process engine in ``count`` processes, with the bits of one.

    Any process can do any task: what a site keeps from round to round is in the run's folder at the site. A site goes
    to the process that did its last task, where its data are open, unless that one is busy.
    """

    def __init__(self, count: int, log: Say) -> None:
        self._all = [TrainingProcess(log, shares=True) for _ in range(count)]
        self._free = list(self._all)
        self._last: dict[str, TrainingProcess] = {}  # by site
        self._changed = threading.Condition()

    def do_work(
        self, order: SiteTask, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say
    ) -> TaskResult:
        """Return the result of ``order``, done by a process that is free; callable from several threads."""
        with self._changed:
            self._changed.wait_for(lambda: self._free)
            known = self._last.get(order.site)
            worker = self._last[order.site] = known if known in self._free and known is not None else self._free[0]
            self._free.remove(worker)
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
