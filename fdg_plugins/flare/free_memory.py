# SPDX-License-Identifier: Apache-2.0
"""Memory that a process of FLARE's no longer needs is found and given back to the system, while a job runs.

FLARE's messages leave objects behind that refer to each other and to what they carried. Python looks for such garbage
in all of its objects only when they have grown by a quarter, which takes hundreds of rounds, since the packages that a
process imports make hundreds of thousands of objects. The C library (glibc) then keeps what was freed for the thread
that had asked for it, of which there are dozens. So a job with a small model holds 150 MiB more after a hundred rounds.
"""

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable

EVERY = 10.0
"""Seconds between two searches, at least."""
SHARE = 0.01
"""The largest part of the time that searches take: Python does nothing else meanwhile."""

_kept: set[int] = set()  # ids of the processes that have the thread: a forked process has none


def give_back_memory(every: float = EVERY) -> None:
    """Look for garbage, and give free memory back, every ``every`` seconds from now on; may be called again.

    What exists at the first call is taken to stay: it is not searched again (``gc.freeze``). What is imported later is,
    so that a search may take a quarter of a second on a slow machine; the next one then waits longer.
    """
    if os.getpid() in _kept:
        return
    _kept.add(os.getpid())
    gc.collect()
    gc.freeze()
    threading.Thread(target=search_for_ever, args=(every, trimmer()), name="fdg_free_memory", daemon=True).start()


def trimmer() -> Callable[[], None]:
    """Return what gives the C library's free memory back to the system: nothing where it is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return lambda: None
    return lambda: trim(0)


def search_for_ever(every: float, trim: Callable[[], None]) -> None:
    """Look for garbage and call ``trim``, for ever, with a pause of ``every`` seconds or more before each search."""
    pause = every
    while True:
        time.sleep(pause)
        start = time.perf_counter()
        gc.collect()
        trim()
        pause = max(every, (time.perf_counter() - start) / SHARE)
