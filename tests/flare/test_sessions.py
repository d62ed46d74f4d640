# SPDX-License-Identifier: Apache-2.0
"""A session with FLARE's server that is interrupted while it is being opened."""

import sys
from pathlib import Path

import pytest

from fdg_plugins.lab.poc.kits import provision_kits, read_project
from tests.processes import execute

# The session's threads already look for the server when its login begins.
CODE = """
import sys
from nvflare.fuel.hci.client import api
from fdg_plugins.flare.sessions import open_session

def interrupt(*_, **__):
    raise KeyboardInterrupt

api.Authenticator = interrupt
open_session(sys.argv[1], sys.argv[2], 5.0)
"""


@pytest.mark.slow
def test_who_interrupts_a_login_has_the_process_end(tmp_path: Path) -> None:
    project = read_project(1)  # nobody listens there
    person = project.people[0]
    kit = provision_kits(project.content, tmp_path) / person
    assert "KeyboardInterrupt" in execute(sys.executable, "-c", CODE, person, kit).stdout
