# SPDX-License-Identifier: Apache-2.0
"""Asking sites through FLARE's own handling of results: every site ends with an answer or with a reason."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from nvflare.apis.client import Client
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants

from fdg_plugins.controllers.messenger import Aborted, Messenger, Request, StragglerTimeout
from fdg_plugins.errors import ContributionError
from fdg_plugins.messages import HEADER_NOT_FINITE, HEADER_REASON, HEADER_STOP, META_SITE, TASK_EVALUATE, TASK_TRAIN
from tests.controllers.federation_stubs import BUSY, Engine, Line, context_of

Reply = Callable[[str, str, Shareable], Shareable | None]


class Asking(Messenger):
    """A messenger whose workflow is the test."""

    def run(self) -> None:
        """Do nothing."""


def answer(accuracy: float = 0.5) -> Shareable:
    return DXO(DataKind.METRICS, data={"accuracy": accuracy}).to_shareable()


def connect(folder: Path, reply: Reply) -> tuple[Asking, Line]:
    messenger, line = Asking(poll=0.001), Line(reply)
    messenger.set_communicator(line)
    messenger.abort_signal = Signal()
    messenger.start_controller(context_of(Engine(folder)))
    return messenger, line


def data() -> FLModel:
    return FLModel(params_type=ParamsType.FULL, params={}, current_round=0)


def ask(folder: Path, reply: Reply, *sites: str) -> tuple[dict[str, str], dict[str, FLModel]]:
    """Return the failures of one request, and the answers by site."""
    messenger, _ = connect(folder, reply)
    answers: dict[str, FLModel] = {}
    failures = messenger.ask([Request(TASK_EVALUATE, sites, data(), answers.__setitem__)], 9)
    return failures, answers


def test_every_site_is_asked_and_its_answer_is_keyed_by_the_name_flare_knows_it_by(tmp_path: Path) -> None:
    def reply(site: str, task: str, request: Shareable) -> Shareable:
        return DXO(DataKind.METRICS, data={"accuracy": len(site) / 10}, meta={META_SITE: "impostor"}).to_shareable()

    failures, answers = ask(tmp_path, reply, "b", "ab")
    assert failures == {}
    assert {site: model.metrics for site, model in answers.items()} == {"b": {"accuracy": 0.1}, "ab": {"accuracy": 0.2}}


def test_all_requests_are_sent_before_any_answer_is_waited_for(tmp_path: Path) -> None:
    order: list[str] = []

    def answered(site: str, task: str, request: Shareable) -> Shareable:
        order.append(f"{len(line.sent)} {site}")
        return answer()

    messenger, line = connect(tmp_path, answered)
    requests = [
        Request(TASK_TRAIN, ("a", "b"), data(), lambda site, model: None),
        Request(TASK_EVALUATE, ("c",), data(), lambda site, model: None),
    ]
    assert messenger.ask(requests, 9) == {}
    assert line.sent == [(TASK_TRAIN, ("a", "b"), 9), (TASK_EVALUATE, ("c",), 9)]
    assert order == ["2 a", "2 b", "2 c"]


def test_a_request_to_no_site_is_not_sent_since_it_would_stand_until_its_time_is_over(tmp_path: Path) -> None:
    messenger, line = connect(tmp_path, lambda *_: answer())
    requests = [
        Request(task, sites, data(), lambda *_: None) for task, sites in ((TASK_TRAIN, ("a",)), (TASK_EVALUATE, ()))
    ]
    assert messenger.ask(requests, 9) == {}
    assert line.sent == [(TASK_TRAIN, ("a",), 9)]


def test_a_site_without_an_answer_is_named_with_the_time_it_had(tmp_path: Path) -> None:
    failures, answers = ask(tmp_path, lambda site, *_: None if site == "b" else answer(), "a", "b")
    assert failures == {"b": "did not answer within 9 s."}
    assert list(answers) == ["a"]


def test_an_error_reply_is_a_failure_with_the_reason_that_the_site_gives(tmp_path: Path) -> None:
    replies = {
        "a": make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: "data root /x is not a folder."}),
        "b": make_reply(ReturnCode.TASK_UNKNOWN),
        "c": answer(),
    }
    failures, answers = ask(tmp_path, lambda site, *_: replies[site], *replies)
    assert failures == {
        "a": "data root /x is not a folder.",
        "b": f"answered with the error {ReturnCode.TASK_UNKNOWN}.",
    }
    assert list(answers) == ["c"]


HOSTILE = "out of memory\n2030-01-01 INFO site honest: ruined it\x1b[31m\r\u202e" + "x" * 20_000_000


@pytest.mark.parametrize("reason", [HOSTILE, 7, ["x" * 10**6], {"a": HOSTILE}, b"\xff" * 10**6])
def test_whatever_a_site_gives_as_a_reason_becomes_one_short_printable_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reason: object
) -> None:
    reply = make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: reason})
    failures, _ = ask(tmp_path, lambda site, task, request: reply, "liar")
    assert failures["liar"].isprintable()
    assert len(failures["liar"]) < 460
    assert all(line.isprintable() and len(line) < 700 for line in caplog.text.splitlines())
    assert len(caplog.text.splitlines()) == 1


def test_a_refusal_that_quotes_a_site_is_one_short_printable_line(tmp_path: Path) -> None:
    messenger, _ = connect(tmp_path, lambda site, task, request: answer())

    def refuse(site: str, model: FLModel) -> None:
        raise ContributionError(f"site {site}: field {HOSTILE} is wrong.")

    failures = messenger.ask([Request(TASK_TRAIN, ("liar",), data(), refuse)], 9)
    assert failures["liar"].isprintable()
    assert len(failures["liar"]) < 460


def test_a_site_whose_training_gave_nothing_finite_is_noted_for_that_question_alone(tmp_path: Path) -> None:
    reply = make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_NOT_FINITE: True})
    messenger, line = connect(tmp_path, lambda site, task, request: reply if site == "a" else answer())
    messenger.ask([Request(TASK_TRAIN, ("a", "b"), data(), lambda site, model: None)], 9)
    assert messenger.not_finite == {"a"}
    line.answer = lambda site, task, request: answer()
    messenger.ask([Request(TASK_TRAIN, ("a", "b"), data(), lambda site, model: None)], 9)
    assert messenger.not_finite == set()


def test_a_site_that_wants_to_leave_is_noted_with_its_reason(tmp_path: Path) -> None:
    reply = make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: "site a: no budget.", HEADER_STOP: True})
    messenger, _ = connect(tmp_path, lambda site, task, request: reply if site == "a" else answer())
    messenger.ask([Request(TASK_TRAIN, ("a", "b"), data(), lambda site, model: None)], 9)
    assert messenger.departed == {"a": "no budget."}


def test_a_refused_answer_is_a_failure_and_does_not_repeat_the_name_of_the_site(tmp_path: Path) -> None:
    def refuse(site: str, model: FLModel) -> None:
        if site == "a":
            raise ContributionError("site a: parameter 'w' is missing.")

    messenger, _ = connect(tmp_path, lambda *_: answer())
    assert messenger.ask([Request(TASK_TRAIN, ("a", "b"), data(), refuse)], 9) == {"a": "parameter 'w' is missing."}


def test_an_answer_that_breaks_its_reader_or_is_no_answer_at_all_is_a_failure_too(tmp_path: Path) -> None:
    def break_on_a(site: str, model: FLModel) -> None:
        if site == "a":
            raise KeyError("unforeseen")

    messenger, _ = connect(tmp_path, lambda site, *_: Shareable() if site == "b" else answer())
    failures = messenger.ask([Request(TASK_TRAIN, ("a", "b", "c"), data(), break_on_a)], 9)
    assert failures["a"] == "its answer cannot be used; the server's log says why."
    assert failures["b"].startswith("its answer cannot be read: ValueError: ")
    assert failures["b"].endswith(".")
    assert "c" not in failures


def spoilt(change: Callable[[Shareable], None]) -> Shareable:
    reply = answer()
    change(reply)
    return reply


ODD_HEADERS: dict[str, Callable[[Shareable], None]] = {
    "an array as return code": lambda reply: reply.set_return_code(np.array([1, 2])),
    "a mapping as return code": lambda reply: reply.set_return_code({"a": 1}),
    "lines as kind of content": lambda reply: reply.set_header(ReservedHeaderKey.CONTENT_TYPE, HOSTILE),
    "an array as model name": lambda reply: reply.set_header(AppConstants.SUBMIT_MODEL_NAME, np.array([1, 2])),
    "lines as round": lambda reply: reply.set_header(AppConstants.CURRENT_ROUND, HOSTILE),
}


@pytest.mark.parametrize("change", ODD_HEADERS.values(), ids=ODD_HEADERS.keys())
def test_whatever_is_in_the_headers_of_one_answer_the_others_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Callable[[Shareable], None]
) -> None:
    replies = {"a": answer(), "liar": spoilt(change), "z": answer()}
    failures, answers = ask(tmp_path, lambda site, *_: replies[site], *replies)
    assert list(failures) == ["liar"]
    assert failures["liar"].isprintable()
    assert list(answers) == ["a", "z"]
    assert all(line.isprintable() and len(line) < 600 for line in caplog.text.splitlines())
    assert len(caplog.text.splitlines()) == 1


def test_an_unforeseen_error_is_one_printable_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def break_on_it(site: str, model: FLModel) -> None:
        raise RuntimeError(HOSTILE)

    messenger, _ = connect(tmp_path, lambda *_: answer())
    messenger.ask([Request(TASK_TRAIN, ("a",), data(), break_on_it)], 9)
    assert "site a: RuntimeError: out of memory" in caplog.text
    assert "(in break_on_it, test_messenger.py:" in caplog.text
    assert all(line.isprintable() and len(line) < 600 for line in caplog.text.splitlines())


def test_failures_are_sorted_logged_and_forgotten_with_the_next_question(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    silent = {"c", "a"}
    messenger, _ = connect(tmp_path, lambda site, *_: None if site in silent else answer())
    request = Request(TASK_TRAIN, ("c", "b", "a"), data(), lambda site, model: None)
    assert list(messenger.ask([request], 9)) == ["a", "c"]
    assert "site a: did not answer within 9 s." in caplog.text
    silent.clear()
    assert messenger.ask([request], 9) == {}


def test_an_abort_ends_the_wait_at_once_and_names_those_who_were_waited_for(tmp_path: Path) -> None:
    asked: list[str] = []

    def reply(site: str, task: str, request: Shareable) -> Shareable:
        asked.append(site)
        if site == "b":
            messenger.abort_signal.trigger(True)
        return make_reply(ReturnCode.TASK_ABORTED) if site == "b" else answer()

    messenger, _ = connect(tmp_path, reply)
    with pytest.raises(Aborted, match=r"the job was aborted while it waited for c, d\.$"):
        messenger.ask([Request(TASK_TRAIN, ("a", "b", "c", "d"), data(), lambda site, model: None)], 9)
    assert asked == ["a", "b"]


def test_an_abort_with_the_last_answer_is_an_abort_too(tmp_path: Path) -> None:
    def reply(site: str, task: str, request: Shareable) -> Shareable:
        messenger.abort_signal.trigger(True)
        return answer()

    messenger, _ = connect(tmp_path, reply)
    with pytest.raises(Aborted, match="waited for nobody"):
        messenger.ask([Request(TASK_TRAIN, ("a",), data(), lambda site, model: None)], 9)


def test_an_answer_after_its_task_has_ended_is_logged_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    messenger, _ = connect(tmp_path, lambda *_: None)
    failures = messenger.ask([Request(TASK_TRAIN, ("a",), data(), lambda site, model: pytest.fail("used"))], 9)
    late = (Client("a", "token"), TASK_TRAIN, "id", answer(), context_of(Engine(tmp_path)))
    messenger.process_result_of_unknown_task(*late)
    assert "site a: its answer came after its task had ended, and is not used." in caplog.text
    assert failures == {"a": "did not answer within 9 s."}


def test_the_monitor_of_flare_looks_as_often_as_the_messenger(tmp_path: Path) -> None:
    _, line = connect(tmp_path, lambda *_: None)
    assert line._task_check_period == 0.001


def test_every_line_of_a_marked_run_carries_the_mark(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    messenger, _ = connect(tmp_path, lambda site, task, request: None)
    messenger._mark = "STAND-IN"
    caplog.set_level("INFO")
    messenger.say("a line")
    messenger.warning("a warning")
    messenger.error("an error")
    for text in ("STAND-IN | a line", "STAND-IN | a warning", "STAND-IN | an error"):
        assert text in caplog.text


def test_a_site_that_flare_deems_lost_is_called_lost(tmp_path: Path) -> None:
    messenger, line = connect(tmp_path, lambda site, task, request: None if site == "gone" else answer())
    line.lost = {"gone"}
    request = Request(TASK_TRAIN, ("a", "gone"), data(), lambda site, model: None)
    assert messenger.ask([request], 9) == {"gone": "is lost: there is no sign of life from it."}


# --- patience ---------------------------------------------------------------------------------------


def test_a_slow_site_is_left_behind_once_enough_others_have_answered(tmp_path: Path) -> None:
    messenger, _ = connect(tmp_path, lambda site, task, request: BUSY if site == "slow" else answer())
    request = Request(TASK_TRAIN, ("a", "b", "slow"), data(), lambda site, model: None)
    started = time.monotonic()
    failures = messenger.ask([request], 300, StragglerTimeout(0.2, 2, TASK_TRAIN))
    assert failures == {"slow": "did not answer within 0.2 s after 2 others had."}
    assert 0.2 <= time.monotonic() - started < 300


def test_patience_begins_with_enough_usable_answers_to_the_task_it_is_for(tmp_path: Path) -> None:
    looks = 0

    def reply(site: str, task: str, request: Shareable) -> Shareable:
        nonlocal looks
        looks += site == "slow"
        return BUSY if site == "slow" and looks < 100 else answer()

    def refuse(site: str, model: FLModel) -> None:
        if site == "b":
            raise ContributionError("site b: no.")

    messenger, _ = connect(tmp_path, reply)
    requests = [
        Request(TASK_TRAIN, ("a", "b", "slow"), data(), refuse),
        Request(TASK_EVALUATE, ("c", "d"), data(), lambda site, model: None),
    ]
    assert messenger.ask(requests, 9, StragglerTimeout(0.0, 3, TASK_TRAIN)) == {"b": "no."}
