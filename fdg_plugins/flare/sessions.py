# SPDX-License-Identifier: Apache-2.0
"""A person's session with the server of a federation; Ctrl-C while it is being opened ends it too."""

from pathlib import Path
from typing import Any

from nvflare.fuel.flare_api.flare_api import Session

from fdg_plugins.flare.internals import fetch


def person_of_kit(folder: Path) -> tuple[str, str]:
    """Return the user name of the personal kit in ``folder``, and the folder from which FLARE's sessions start.

    Raises ``ValueError`` if it is not a user's kit, ``InternalsError`` if this FLARE version does not tell.
    """
    person, kit = fetch("resolve_admin_user_and_dir_from_startup_kit")(str(folder))
    return str(person), str(kit)


def open_session(person: str, folder: str, timeout: float, tries: int | None = None) -> Any:
    """Return a session of ``person``, whose startup kit is in ``folder``, as FLARE's ``new_secure_session`` does.

    ``timeout``: seconds to wait for an unreachable server. ``tries``: the most logins that are tried, None: FLARE's own
    number. FLARE leaves an interrupted session as it is, and then its threads, which go on looking for the server, keep
    the process from ending.
    """
    session = Session(person, folder)
    if tries is not None:
        session.api.auto_login_max_tries = tries
    try:
        session.try_connect(timeout)
    except BaseException:
        session.api.close()  # not that of the session, which would first tell the server
        raise
    return session
