# SPDX-License-Identifier: Apache-2.0
"""No site writes lines of the server's log by what FLARE puts before its lines."""

import logging

import pytest
from nvflare.apis import fl_component
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.fuel.utils.log_utils import get_obj_logger
from nvflare.private.fed.server.server_commands import SubmitUpdateCommand
from nvflare.private.fed.server.server_runner import ServerRunner

from fdg_plugins.flare import internals
from fdg_plugins.flare.log_prefix import LONGEST_LINE, LONGEST_PREFIX, keep_prefixes_printable

FORGED = "x\n2030-01-01 00:00:00,000 - FederationController - ERROR - stopped: site honest lied\x1b[2J\u202e"


@pytest.fixture(autouse=True)
def prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLARE's own function before the test, and after it."""
    known = fl_component.generate_log_message
    own = known.args[0] if hasattr(known, "args") else known
    monkeypatch.setattr(fl_component, "generate_log_message", own)


def context(identity: str = "photo", job: str = "job", code: object = "OK") -> FLContext:
    """Return the server's context while it handles an answer with these claims."""
    own, peer = FLContext(), FLContext()
    for key, value in ((ReservedKey.IDENTITY_NAME, "server"), (FLContextKey.CURRENT_RUN, "job")):
        own.set_prop(key, value, private=False, sticky=False)
    for key, value in ((ReservedKey.IDENTITY_NAME, identity), (FLContextKey.CURRENT_RUN, job)):
        peer.set_prop(key, value, private=False, sticky=False)
    answer = Shareable()
    answer.set_return_code(code)
    own.set_peer_context(peer)
    own.set_prop(FLContextKey.TASK_RESULT, answer, private=True, sticky=False)
    return own


@pytest.mark.parametrize("claim", ["identity", "job", "code"])
@pytest.mark.parametrize("text", [FORGED, "x" * 10**6])
def test_whatever_a_site_claims_a_line_stays_one_printable_line(
    claim: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert keep_prefixes_printable() is None
    FLComponent().log_warning(context(**{claim: text}), "its answer is refused.", fire_event=False)
    (record,) = caplog.records
    said = record.getMessage()
    assert said.isprintable()
    assert said.endswith(" its answer is refused.")
    assert len(said) < LONGEST_PREFIX + 100


def test_an_honest_line_and_the_line_breaks_of_the_message_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    FLComponent().log_warning(context(), "an error\nwith its traceback", fire_event=False)
    assert keep_prefixes_printable() is keep_prefixes_printable() is None  # a second time changes nothing
    FLComponent().log_warning(context(), "an error\nwith its traceback", fire_event=False)
    before, after = caplog.records
    assert before.getMessage() == after.getMessage()
    assert before.getMessage().startswith(
        "[identity=server, run=job, peer=photo, peer_run=job, peer_rc=OK]: an error\n"
    )


def test_a_flare_without_the_internal_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fl_component, "generate_log_message")
    assert str(keep_prefixes_printable()).startswith("FLARE ")
    assert internals.LOG_PREFIX in str(keep_prefixes_printable())


def passed(owner: type, level: int, text: str) -> str:
    """Return what a line of one of FLARE's classes says once its logger's filters have seen it."""
    record = logging.LogRecord("", level, "", 0, "task %s is not found", (text,), None)
    assert get_obj_logger(owner).filter(record)
    return record.getMessage()


@pytest.mark.parametrize("owner", [SubmitUpdateCommand, ServerRunner])
@pytest.mark.parametrize("text", [FORGED, "x" * 10**6])
def test_ids_of_tasks_that_flare_logs_as_they_came_stay_in_their_line(text: str, owner: type) -> None:
    assert keep_prefixes_printable() is keep_prefixes_printable() is None
    said = passed(owner, logging.INFO, text)
    assert said.isprintable()
    assert said.startswith("task x")
    assert len(said) < LONGEST_LINE + 50
    assert passed(owner, logging.INFO, "0f6f0d3c") == "task 0f6f0d3c is not found"


def test_a_traceback_keeps_its_lines() -> None:
    assert keep_prefixes_printable() is None
    assert passed(ServerRunner, logging.ERROR, "an error\nwith its traceback") == (
        "task an error\nwith its traceback is not found"
    )
