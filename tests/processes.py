# SPDX-License-Identifier: Apache-2.0
"""Commands as a user starts them, and looks at running processes, any of which may end at any moment."""

import os
import subprocess
from pathlib import Path

import psutil

TIMEOUT_S = 1200
WORKER = "--multiprocessing-fork"  # in the command line of the process in which a site trains


def command_line(process: psutil.Process) -> str:
    """Return the command line of a process as one text, "" if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def printed_by(*words: object, folder: Path | str | None = None, **variables: str) -> str:
    """Return what a command prints that must succeed; its environment has ``variables``, and no other ``FDG_*``."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FDG_")}
    done = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env={**clean, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout
