# SPDX-License-Identifier: Apache-2.0
"""Where the state of a run lies, at the server and at every site: beside FLARE's folders of single jobs.

A run may outlive its job: it is continued by another one. Its name is the id of the job that started it.
"""

import re
from pathlib import Path

from nvflare.apis.workspace import Workspace

from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import shorten

FOLDER = "fdg_state"


def state_folder(workspace: Workspace, run: str) -> Path:
    """Return the folder of a run in a participant's workspace; raise ``SettingsError`` if ``run`` is no job's id."""
    if not isinstance(run, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", run):
        raise SettingsError(f"run is {shorten(run)}, expected the id of a job.")
    return Path(workspace.get_root_dir()) / FOLDER / run
