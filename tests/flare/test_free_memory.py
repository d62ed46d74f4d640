# SPDX-License-Identifier: Apache-2.0
"""Garbage is found in the background, once per process, and free memory goes back to the system."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fdg_plugins.flare import free_memory
from fdg_plugins.flare.free_memory import trimmer

FOUND = """
import gc, threading, time, weakref
from fdg_plugins.flare.free_memory import give_back_memory

class Node:
    def __init__(self) -> None:
        self.me = self  # only a search for garbage finds it

gc.disable()
give_back_memory(every=0.05)
give_back_memory(every=0.05)
print(sum(thread.name == "fdg_free_memory" for thread in threading.enumerate()))
node = weakref.ref(Node())
deadline = time.monotonic() + 30
while node() is not None and time.monotonic() < deadline:
    time.sleep(0.02)
print(node())
"""

FREED = """
from pathlib import Path
from fdg_plugins.flare.free_memory import trimmer

def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

blocks = [bytearray(b"x" * 100_000) for _ in range(2000)]  # below the size that glibc takes from the system for itself
last = bytearray(b"x" * 100_000)  # keeps the end of the heap
del blocks
before = resident()
trimmer()()
print(before - resident())
"""


def printed(script: str) -> list[str]:
    """Return the lines that a process of its own prints: the thread lasts as long as its process."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_garbage_is_found_by_one_thread_however_often_it_is_asked_for() -> None:
    assert printed(FOUND) == ["1", "None"]


@pytest.mark.parametrize(("takes", "pause"), [(0.01, 10.0), (0.25, 25.0)])
def test_a_long_search_is_followed_by_a_longer_pause(
    takes: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, pauses = 0.0, []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise InterruptedError

    def trim() -> None:
        nonlocal clock
        clock += takes

    monkeypatch.setattr(free_memory, "time", SimpleNamespace(sleep=sleep, perf_counter=lambda: clock))
    with pytest.raises(InterruptedError):
        free_memory.search_for_ever(10.0, trim)
    assert pauses == pytest.approx([10.0, pause, pause])


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_free_memory_below_memory_in_use_goes_back_to_the_system() -> None:
    assert int(printed(FREED)[0]) > 100 * 2**20, "of 200 MB"


def test_another_c_library_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    trimmer()()
