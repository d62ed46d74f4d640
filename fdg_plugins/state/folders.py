# SPDX-License-Identifier: Apache-2.0
"""Where the state of a run lies, at the server and at every site: beside FLARE's folders of single jobs.

A run may outlive its job: it is continued by another one. Its name is the id of the job that started it. What is in
the folder is derived from data, so only its owner may enter it. It goes when the run has finished: nothing of it is
needed then. A run that broke off keeps it, until it has been resumed and finished, or ``fdg clean`` takes it away.
"""

import contextlib
import os
import re
import shutil
from pathlib import Path

from nvflare.apis.workspace import Workspace

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.messages import shorten

FOLDER = "fdg_state"

_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def state_folder(workspace: Workspace, run: str) -> Path:
    """Return the folder of a run in a participant's workspace; raise ``SettingsError`` if ``run`` is no job's id."""
    if not is_run(run):
        raise SettingsError(f"run is {shorten(run)}, expected the id of a job.", public=True)
    return Path(workspace.get_root_dir()) / FOLDER / run


def is_run(name: object) -> bool:
    """Return whether ``name`` can be the id of a job."""
    return isinstance(name, str) and _RUN.fullmatch(name) is not None


def mark_in_use(folder: Path) -> None:
    """Let the folder of a run show that the run still goes on, however little of it changes: ``fdg clean`` looks."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def remove_state(folder: Path) -> None:
    """Remove the folder of a run that has finished, if it is there; a link in its place is not followed.

    Raises ``DataError`` naming the folder if something of it stays.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise DataError(f"folder {folder} of a finished run cannot be removed: {error.strerror or error}.") from error
