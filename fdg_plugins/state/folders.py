# SPDX-License-Identifier: Apache-2.0
"""The folder of a run's state, at the server and at every site, next to FLARE's job folders.

A run can outlive its job and be resumed by another job; its name is the id of the job that started it. Its state is
derived from data, so only the owner can enter the folder. The server's is removed when the run has finished; an
interrupted run keeps it until the run has been resumed and finished, or until ``fdg kit clean`` removes it. A site's is
removed when no task has used it for a month, or earlier by ``fdg kit clean``.

FLARE's simulator erases its whole workspace when it starts. ``FDG_STATE`` therefore names another place for the state
of the run of one simulation, as ``fdg run`` and ``fdg sweep`` do; a run that finds its own state there is resumed.
"""

import contextlib
import os
import re
import shutil
import time
from pathlib import Path

from nvflare.apis.workspace import Workspace

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.storage import user_path
from fdg_plugins.values import shorten

FOLDER = "fdg_state"
VARIABLE = "FDG_STATE"
EXPIRY_S = 30 * 86_400

_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def state_folder(workspace: Workspace, run: str) -> Path:
    """Return a run's folder in a participant's workspace, or in the place that ``FDG_STATE`` names.

    In that place, each participant has a folder by its name: in containers, all have a workspace of one path. Raises
    ``SettingsError`` if ``run`` is not a valid job id.
    """
    if not is_run(run):
        raise SettingsError(f"run is {shorten(run)}, expected the id of a job.", public=True)
    return _place(workspace) / run


def _place(workspace: Workspace) -> Path:
    root, elsewhere = Path(workspace.get_root_dir()), os.environ.get(VARIABLE, "").strip()
    if elsewhere:
        root = user_path(elsewhere, os.environ) / Path(workspace.site_name or root).name
    return root / FOLDER


def state_beside(folder: Path, site: str) -> Path:
    """Return the folder of the same run of ``site``, whose workspace is beside that of the participant of ``folder``.

    Only in a simulation are they.
    """
    return folder.parents[2] / site / FOLDER / folder.name


def is_run(name: object) -> bool:
    """Return whether ``name`` is a valid job id: 1 to 64 letters, digits, hyphens and underscores."""
    return isinstance(name, str) and _RUN.fullmatch(name) is not None


def mark_in_use(folder: Path) -> None:
    """Update the folder's modification time, so that ``fdg kit clean`` sees an active run even if no file changes."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def remove_expired(workspace: Workspace) -> None:
    """Remove the folders of runs that no task has used for ``EXPIRY_S``, as far as possible."""
    for folder in _place(workspace).glob("*"):
        if is_run(folder.name) and time.time() - folder.lstat().st_mtime > EXPIRY_S:
            with contextlib.suppress(DataError):
                remove_state(folder)


def remove_state(folder: Path) -> None:
    """Remove the folder of a finished run if it exists; a symbolic link in its place is not followed.

    Raises ``DataError`` naming the folder if it cannot be removed completely.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise DataError(f"folder {folder} of a finished run cannot be removed: {error.strerror or error}.") from error
