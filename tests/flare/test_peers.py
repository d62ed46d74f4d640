# SPDX-License-Identifier: Apache-2.0
"""An answer bears the name of the client that owns its token, and a return code that FLARE can have sent."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nvflare.apis.client import Client
from nvflare.apis.fl_constant import ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from fdg_plugins.flare.peers import correct_claims


def arrived(result: Any, claimed: Any = "hospital") -> tuple[FLContext, list[Any]]:
    """Return the context and the arguments that FLARE's runner gets of a submission of the client photo."""
    came: list[Any] = []
    runner = SimpleNamespace(process_submission=lambda *arguments: came.extend(arguments))
    assert correct_claims(runner) is None
    own, peer = FLContext(), FLContext()
    peer.set_prop(ReservedKey.IDENTITY_NAME, claimed, private=False, sticky=False)
    own.set_peer_context(peer)
    runner.process_submission(Client("photo", "token"), "train", "id", result, own)
    return own, came


@pytest.mark.parametrize("claimed", ["photo", "hospital", "photo\nx", None, 3])
def test_the_name_is_that_of_the_client(claimed: Any) -> None:
    context, came = arrived(Shareable(), claimed)
    peer = context.get_peer_context()
    assert peer is not None
    assert peer.get_identity_name() == "photo"
    assert [came[1], came[2], came[4]] == ["train", "id", context]


@pytest.mark.parametrize("code", [value for name, value in vars(ReturnCode).items() if not name.startswith("_")])
def test_a_code_of_flare_stays_as_it_is(code: str) -> None:
    _, came = arrived(make_reply(code))
    assert came[3].get_return_code() == code


@pytest.mark.parametrize("code", ["OK\nforged", "a b", "", "x" * 51, "ÖK", 3, None, {"a": 1}, np.array([1, 2])])
def test_any_other_becomes_that_of_an_error(code: Any) -> None:
    reply = Shareable()
    reply.set_return_code(code)
    _, came = arrived(reply)
    assert came[3].get_return_code() == ReturnCode.EXECUTION_RESULT_ERROR


def test_what_is_no_answer_is_left_to_flare() -> None:
    _, came = arrived("nothing of the kind")
    assert came[3] == "nothing of the kind"
