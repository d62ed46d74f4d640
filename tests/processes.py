# SPDX-License-Identifier: Apache-2.0
"""Looks at running processes, any of which may end at any moment."""

import psutil

WORKER = "--multiprocessing-fork"  # in the command line of the process in which a site trains


def command_line(process: psutil.Process) -> str:
    """Return the command line of a process as one text, "" if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
