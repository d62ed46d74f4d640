# SPDX-License-Identifier: Apache-2.0
"""The runs in the folders that a user names, with a warning for those left out."""

from pathlib import Path
from typing import TYPE_CHECKING

from fdg_plugins.cli.console import say
from fdg_plugins.errors import DataError

if TYPE_CHECKING:
    from fdg_plugins.analysis import Run


def runs_below(paths: list[Path]) -> "tuple[Run, ...]":
    """Return the runs below ``paths``; report on stderr what was left out. Raise ``DataError`` if there are none."""
    from fdg_plugins.analysis import find_runs  # not loaded for ``--help``

    found = find_runs(paths)
    for folder, reason in found.left_out:
        say(f"Warning: {folder} is left out: {reason}", style="yellow", on_stderr=True)
    if not found.runs:
        where = ", ".join(str(path) for path in paths)
        raise DataError(f"there is no finished run below {where}; expected at least one results.json.")
    return found.runs
