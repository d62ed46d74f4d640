# SPDX-License-Identifier: Apache-2.0
"""GPUs that are not there: an ``nvidia-smi`` that lists them, for FLARE's own resource manager and consumer to ask."""

import os
from collections.abc import Sequence
from pathlib import Path

SCRIPT = """\
#!/bin/sh
# Answers what FLARE asks: --query-gpu=index, memory.total or memory.free, with a heading line.
case "$1" in
{answers}
*) exit 2 ;;
esac
"""


def fake_nvidia_smi(folder: Path, memory: Sequence[int]) -> str:
    """Write an ``nvidia-smi`` with GPUs of ``memory`` MiB, all free; return a PATH on which it is the first."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "index": ("index", [str(number) for number in range(len(memory))]),
        "memory.total": ("memory.total [MiB]", [f"{size} MiB" for size in memory]),
        "memory.free": ("memory.free [MiB]", [f"{size} MiB" for size in memory]),
    }
    answers = [
        f"--query-gpu={query}) printf '%s\\n' {' '.join(repr(line) for line in [heading, *lines])} ;;"
        for query, (heading, lines) in told.items()
    ]
    script = folder / "nvidia-smi"
    script.write_text(SCRIPT.format(answers="\n".join(answers)), encoding="utf-8")
    script.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
