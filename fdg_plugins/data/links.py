# SPDX-License-Identifier: Apache-2.0
"""Links among a user's files: none may lead out of the folder that was named."""

from pathlib import Path


def leads_outside(root: Path, path: Path) -> bool:
    """Return whether a path, after resolving links, lies outside ``root``, a resolved folder, or forms a cycle."""
    try:
        resolved = path.resolve()
    except (OSError, RuntimeError):  # a cycle, up to Python 3.12
        return True
    return resolved.is_symlink() or not resolved.is_relative_to(root)
