# SPDX-License-Identifier: Apache-2.0
"""Commands as a user starts them, and looks at running processes, any of which may end at any moment."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import psutil

FDG, NVFLARE = (str(Path(sys.executable).with_name(name)) for name in ("fdg", "nvflare"))
TIMEOUT_S = 2400
WORKER = "--multiprocessing-fork"  # in the command line of the process in which a site trains


def command_line(process: psutil.Process) -> str:
    """Return the command line of a process as one text, "" if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def shell(**variables: str) -> dict[str, str]:
    """Return the environment of a shell in which ``variables`` are set, and no other ``FDG_*``."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FDG_")} | variables


Done: TypeAlias = "subprocess.CompletedProcess[str]"


def execute(
    *words: object,
    folder: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stderr: int = subprocess.STDOUT,
) -> Done:
    """Return a command that has ended, without any input; by default all that it printed is its ``stdout``."""
    return subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def printed_by(*words: object, folder: Path | str | None = None, **variables: str) -> str:
    """Return what a command prints that must succeed, in a shell with ``variables``."""
    done = execute(*words, folder=folder, env=shell(**variables), stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout
