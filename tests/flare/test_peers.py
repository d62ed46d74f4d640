# SPDX-License-Identifier: Apache-2.0
"""An answer bears the name of the client that owns its token, and a return code that FLARE can have sent."""

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nvflare.apis.client import Client
from nvflare.apis.fl_constant import ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.fuel.f3.message import Message
from nvflare.private.defs import CellMessageHeaderKeys
from nvflare.private.fed.server.server_command_agent import ServerCommandAgent

from fdg_plugins.flare.peers import LONGEST_ID, correct_claims, correct_messages, mark_asking_sites
from fdg_plugins.flare.workflow import _in_one_line

FORGED = "x\n2030-01-01 00:00:00,000 - FederationController - ERROR - stopped: site honest lied\x1b[2J\u202e"


def arrived(
    result: Any, claimed: Any = "hospital", task: Any = "train", task_id: Any = "id"
) -> tuple[FLContext, list[Any]]:
    """Return the context and the arguments that FLARE's runner gets of a submission of the client photo."""
    came: list[Any] = []
    runner = SimpleNamespace(process_submission=lambda *arguments: came.extend(arguments))
    correct_claims(runner)
    own, peer = FLContext(), FLContext()
    peer.set_prop(ReservedKey.IDENTITY_NAME, claimed, private=False, sticky=False)
    own.set_peer_context(peer)
    runner.process_submission(Client("photo", "token"), task, task_id, result, own)
    return own, came


@pytest.mark.parametrize("claimed", ["hospital", None, 3])
def test_the_name_is_that_of_the_client(claimed: Any) -> None:
    context, came = arrived(Shareable(), claimed)
    peer = context.get_peer_context()
    assert peer is not None
    assert peer.get_identity_name() == "photo"
    assert [came[1], came[2], came[4]] == ["train", "id", context]
    assert arrived("no answer", claimed)[1][3] == "no answer"


@pytest.mark.parametrize("code", ["OK\nforged", "", "x" * 51, "ÖK", np.array([1, 2])])
def test_any_other_becomes_that_of_an_error(code: Any) -> None:
    reply = Shareable()
    reply.set_return_code(code)
    _, came = arrived(reply)
    assert came[3].get_return_code() == ReturnCode.EXECUTION_RESULT_ERROR


@pytest.mark.parametrize("claim", [FORGED, "x" * 10**6, [FORGED] * 10**4])
def test_what_flare_logs_and_audits_of_an_answer_is_printable_and_short(claim: Any) -> None:
    reply = Shareable()
    reply.set_header(ReservedHeaderKey.AUDIT_EVENT_ID, claim)
    reply.add_cookie(ReservedHeaderKey.WORKFLOW, claim)
    _, came = arrived(reply, task=claim, task_id=claim)
    said = [came[1], came[2], came[3].get_header(ReservedHeaderKey.AUDIT_EVENT_ID)]
    for text in [*said, came[3].get_cookie(ReservedHeaderKey.WORKFLOW)]:
        assert isinstance(text, str)
        assert text.isprintable()
        assert len(text) < LONGEST_ID + 50


def test_who_asks_for_a_task_is_the_client_and_counts_as_alive_under_no_other_name() -> None:
    runner = SimpleNamespace(process_task_request=lambda client, fl_ctx: ("train", "id", Shareable()))
    mark_asking_sites(runner)
    own, peer = FLContext(), FLContext()
    peer.set_prop(ReservedKey.IDENTITY_NAME, "hospital", private=False, sticky=False)
    own.set_peer_context(peer)
    runner.process_task_request(Client("photo", "token"), own)
    assert peer.get_identity_name() == "photo"


def named(token: str | None) -> Any:
    """Return the name that FLARE finds in a message with a token, at a server to which the client photo is known."""
    found: list[Any] = []
    agent = ServerCommandAgent(SimpleNamespace(server=SimpleNamespace()), SimpleNamespace())
    agent.engine.server.client_manager = SimpleNamespace(clients={"of photo": Client("photo", "of photo")})
    agent._aux_communicate = lambda request: found.append(request.payload)
    correct_messages(SimpleNamespace(server=SimpleNamespace(command_agent=agent)))
    payload = Shareable()
    payload.set_peer_props({ReservedKey.IDENTITY_NAME: "hospital", "job": "of the message"})
    agent.aux_communicate(Message({} if token is None else {CellMessageHeaderKeys.TOKEN: token}, payload))
    return found[0].get_peer_props()


@pytest.mark.parametrize(("token", "name"), [("of photo", "photo"), (None, ""), ("of nobody", "")])
def test_a_sign_of_life_is_that_of_the_client_that_owns_the_token(token: str | None, name: str) -> None:
    assert named(token) == {ReservedKey.IDENTITY_NAME: name, "job": "of the message"}


def test_a_line_of_flares_log_stays_one_and_a_traceback_and_our_tables_keep_theirs() -> None:
    said = {}
    for name, level in (("ServerRunner", 20), ("ServerRunner", 40), ("fdg_plugins.controllers", 20)):
        record = logging.LogRecord(name, level, "", 0, "task %s is not found", (FORGED,), None)
        assert _in_one_line(record)
        said[name, level] = record.getMessage()
    assert said.pop(("ServerRunner", 20)).isprintable()
    assert set(said.values()) == {f"task {FORGED} is not found"}
