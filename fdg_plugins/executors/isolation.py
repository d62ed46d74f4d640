# SPDX-License-Identifier: Apache-2.0
"""Runs a site's tasks in a separate process, so that a crash costs the site one task and nothing else.

A segfault in a native kernel, the operating system's out-of-memory killer or ``os._exit`` in a library would otherwise
end FLARE's job process at the site, and FLARE would then end the whole job.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fdg_plugins.executors.dialogue import pack_order, read_answer
from fdg_plugins.executors.frames import READ_SIZE, FrameError, FrameReader
from fdg_plugins.executors.shared_memory import SharedMemory
from fdg_plugins.executors.work import Say, SiteTask, TaskResult
from fdg_plugins.executors.worker import MEMORY, SHARES
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.loop import ShouldStop

WORKER = "fdg_plugins.executors.worker"
POLL_MS = 50
END_TIMEOUT_S = 10
LONGEST_LINE = 4096


class TrainingProcess:
    """Runs a site's tasks in a child process, which starts with the first task and keeps its data open between tasks.

    ``log`` receives each line that the child prints. ``shares``: whether it works for many sites, which share what it
    opens. The next task replaces a child that died or met an unexpected
    error (which may leave an accelerator unusable). The child ends when this process ends, however it ends.
    """

    def __init__(self, log: Say, *, shares: bool = False) -> None:
        self._log = log
        self._shares = shares
        self._child: _Child | None = None
        self._working = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The child's process id, or None if there is no child."""
        return None if self._child is None else self._child.pid

    def do_work(
        self, order: SiteTask, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say
    ) -> TaskResult:
        """Return the outcome of ``order``, as :meth:`SiteWork.do_work` does, except that an abort kills the child."""
        with self._working:
            self._end_if_dead()
            try:
                self._child = child = self._child or _Child(folder, self._log, shares=self._shares)
            except OSError as error:
                return _failed(f"the training process could not be started: {error.strerror}.")
            try:
                parts = pack_order(order, config, folder, child.down)
                return self._converse(child, parts, should_stop, say) or child.last_words()
            except FrameError as error:
                return _failed(str(error))

    def _converse(self, child: "_Child", parts: list[bytes], should_stop: ShouldStop, say: Say) -> TaskResult | None:
        """Return the outcome of an order; end the child unless it gave one, without an unexpected error."""
        outcome = None
        try:
            outcome = child.converse(parts, should_stop, say)
        finally:
            if outcome is None or outcome.trace:
                self._end()
        return outcome

    def close(self) -> None:
        """End the child, even in the middle of a task, which then counts as aborted; callable from any thread."""
        deadline = time.monotonic() + END_TIMEOUT_S
        while not self._working.acquire(timeout=POLL_MS / 1000):
            if (child := self._child) is not None:
                child.end_on_purpose()
            if time.monotonic() > deadline:
                return  # called from within the task, which will end the child itself
        try:
            self._end()
        finally:
            self._working.release()

    def _end_if_dead(self) -> None:
        if self._child is not None and self._child.has_ended():
            self._end()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


class _Child:
    """One training process from start to end, with its pipes."""

    def __init__(self, folder: Path, log: Say, *, shares: bool) -> None:
        self.down, self._up = SharedMemory.create(), SharedMemory.create()  # for the tensors of orders and of answers
        self._reader = FrameReader(self._up)
        self._on_purpose = False
        self._over = False
        # The system kills a child when the thread that started it ends (PR_SET_PDEATHSIG), so keep that thread alive.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="fdg-training-process")
        self._answers, write_end = os.pipe()
        command = [sys.executable, "-P", "-u", "-m", WORKER, str(os.getpid()), str(write_end), str(folder)]
        command += [SHARES] if shares else []
        memories = [one.descriptor for one in (self.down, self._up) if one is not None]
        command += [f"{MEMORY}{','.join(map(str, memories))}"] if len(memories) == 2 else []
        try:
            self._process = self._starter.submit(_start, command, [write_end, *memories]).result()
        except BaseException:
            os.close(self._answers)
            self._close_memory()
            self._starter.shutdown(wait=False)
            raise
        finally:
            os.close(write_end)
        assert self._process.stdin is not None
        self._orders = self._process.stdin.fileno()
        os.set_blocking(self._orders, False)
        os.set_blocking(self._answers, False)
        self._relay = threading.Thread(target=_relay, args=(self._process, log), daemon=True)
        self._relay.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def converse(self, order: list[bytes], should_stop: ShouldStop, say: Say) -> TaskResult | None:
        """Send an order and return its outcome; None if the process ended or was killed because it should stop.

        Raises ``FrameError`` if the process sends an invalid frame.
        """
        pending = [memoryview(part) for part in order]
        goes_on = True
        while goes_on:
            if should_stop():
                self.end_on_purpose()
                return None
            goes_on = self._transfer(pending)
            if (outcome := self._outcome_among_frames(say)) is not None:
                return outcome
        return None

    def _transfer(self, pending: list[memoryview]) -> bool:
        """Write what the pipe accepts of ``pending`` and read what arrives; return whether more may arrive."""
        ended = self.has_ended()
        if not ended:
            self._write(pending)
        arrived = self._read(0 if ended else POLL_MS, writing=bool(pending))
        return arrived or not ended

    def _outcome_among_frames(self, say: Say) -> TaskResult | None:
        """Return the outcome if it is among the frames that have arrived whole; ``say`` the log lines before it."""
        while (frame := self._reader.next_frame()) is not None:
            answer = read_answer(frame)
            if isinstance(answer, TaskResult):
                return answer
            say(answer)
        return None

    def _write(self, pending: list[memoryview]) -> None:
        """Write as much of ``pending`` as the pipe accepts without blocking, and remove it from ``pending``."""
        try:
            while pending:
                pending[0] = pending[0][os.write(self._orders, pending[0]) :]
                if not pending[0]:
                    del pending[0]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            pending.clear()  # the process is ending

    def _read(self, timeout_ms: int, *, writing: bool) -> bool:
        """Wait until data arrives or can be written; return whether any arrived."""
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        if writing:
            poll.register(self._orders, select.POLLOUT)
        poll.poll(timeout_ms)
        try:
            content = os.read(self._answers, READ_SIZE)
        except BlockingIOError:
            return False
        if not content:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_TIMEOUT_S)  # it closed the pipe, so it is ending
        self._reader.feed(content)
        return bool(content)

    def end_on_purpose(self) -> None:
        """Kill the process and all its children, and remember that this was intended."""
        self._on_purpose = True
        self._kill()

    def end(self) -> None:
        """Kill whatever still runs, reap the process and close its pipes."""
        self._kill()
        self._over = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)
        self._relay.join(1)
        os.close(self._answers)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._close_memory()
        self._starter.shutdown(wait=False)

    def _close_memory(self) -> None:
        for memory in (self.down, self._up):
            if memory is not None:
                memory.close()

    def last_words(self) -> TaskResult:
        """Return the outcome of the task during which the process ended."""
        if self._on_purpose:
            return TaskResult("aborted")
        return _failed(reason_of_end(self._process.returncode))

    def _kill(self) -> None:
        if self._over:
            return  # the process id may have been reused
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _failed(reason: str) -> TaskResult:
    """Return the outcome of a task that the process did not complete; the reason contains none of the site's data."""
    return TaskResult("failed", reason=reason, public=reason)


def _start(command: list[str], descriptors: list[int]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=descriptors,
        start_new_session=True,
    )


def _relay(process: "subprocess.Popen[bytes]", log: Callable[[str], None]) -> None:
    """Log what the process prints, line by line, until every holder of its output has closed it."""
    assert process.stdout is not None
    with process.stdout as output:
        while line := output.readline(LONGEST_LINE):
            log(line.decode(errors="replace").rstrip())


def reason_of_end(returncode: int | None) -> str:
    """Return one sentence on how a process ended, given its return code as reported by ``subprocess``."""
    if returncode is None:
        return "the training process cannot be ended; is its machine or its device in trouble?"
    if returncode == -signal.SIGKILL:
        return "the training process was killed (SIGKILL), perhaps out of memory."
    if returncode < 0:
        known = {one.value: one.name for one in signal.Signals}
        return f"the training process died of {known.get(-returncode, f'signal {-returncode}')}."
    return f"the training process ended with exit code {returncode}."
