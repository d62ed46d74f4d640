# SPDX-License-Identifier: Apache-2.0
"""A person's session with the server of a federation, reopened after a lost connection; nothing of it is printed."""

import contextlib
import io
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from nvflare.fuel.flare_api.api_spec import AuthorizationError, InvalidJobDefinition, JobNotDone, JobNotFound
from nvflare.fuel.flare_api.flare_api import Session

from fdg_plugins.errors import DataError, shorten
from fdg_plugins.flare.internals import fetch

Answer = TypeVar("Answer")

POLL_S = 1.5
# Errors that another try would not resolve: the server was reached, and refused.
REFUSALS = (AuthorizationError, InvalidJobDefinition, JobNotDone, JobNotFound)


class Server:
    """The server, as the user of a startup kit reaches it: through one session, reopened after a lost connection."""

    def __init__(self, kit: Path, timeout: float) -> None:
        try:
            found = fetch("resolve_admin_user_and_dir_from_startup_kit")(str(kit))
        except ValueError as error:
            expected = "one that holds startup/fed_admin.json"
            raise DataError(f"folder {kit} is not a startup kit of a person: expected {expected}.") from error
        self._person, self._folder = map(str, found)
        self._timeout = timeout
        self._session: Any = None

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session, whatever state it is in."""
        session, self._session = self._session, None
        if session is not None:
            with _silence(), contextlib.suppress(Exception):
                session.close()

    def ask(self, question: Callable[[Any], Answer], patience: float = 0.0) -> Answer:
        """Return the result of ``question(session)``, retrying an unreachable server for ``patience`` seconds.

        Raises ``DataError`` if it stays unreachable, or refuses.
        """
        deadline = time.monotonic() + patience
        while True:
            try:
                with _silence():
                    self._session = self._session or open_session(self._person, self._folder, self._timeout)
                    return question(self._session)
            except Exception as error:
                # FLARE raises its own type, or a RuntimeError, for every way in which a server can be unreachable.
                words = shorten(" ".join(str(error).split()).rstrip(".") or type(error).__name__, 200).strip("'\"")
                if (is_refusal := isinstance(error, REFUSALS)) or time.monotonic() >= deadline:
                    what = "refuses" if is_refusal else f"of kit {self._folder} cannot be reached"
                    raise DataError(f"the server {what}: {words}.") from error
                self.__exit__()
            time.sleep(POLL_S)

    def submit(self, job: Path, patience: float = 0.0) -> str:
        """Submit the job in folder ``job`` and return its id; if retried, the server accepts it only once."""
        token = uuid.uuid4().hex
        return str(self.ask(lambda session: session.submit_job(str(job), submit_token=token), patience))

    def status(self, job: str, patience: float = 0.0) -> tuple[str, Any]:
        """Return FLARE's status of a job, and its information about the whole system."""
        return self.ask(lambda session: (str(session.get_job_status(job)), session.get_system_info()), patience)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Suppress what FLARE prints meanwhile; anything important is raised as an error."""
    # FLARE's threads log at any time: without a handler, Python would print that.
    logger = logging.getLogger("nvflare")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def open_session(person: str, folder: str, timeout: float) -> Any:
    """Return a session of ``person``, whose startup kit is in ``folder``, as FLARE's ``new_secure_session`` does.

    One login is tried, and an unreachable server waited for, for ``timeout`` seconds. FLARE leaves an interrupted
    session as it is, and then its threads, which go on looking for the server, keep the process from ending.
    """
    session = Session(person, folder)
    session.api.auto_login_max_tries = 1
    try:
        session.try_connect(timeout)
    except BaseException:
        session.api.close()  # not that of the session, which would first tell the server
        raise
    return session
